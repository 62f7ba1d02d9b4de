"""Reports of runs: one HTML page, with pictures inside, that needs neither server nor network.

from pulsora.report.page import page
from pulsora.report.runs import load

Path("report.html").write_text(page(load([Path("runs/a"), Path("runs/b")])))
"""
