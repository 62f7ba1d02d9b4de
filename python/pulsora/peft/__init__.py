"""Low-rank adapters on whole models, and PEFT's files: read and written without PEFT.

    model = pulsora.peft.add_adapters(model, "digital_base", rank=8, targets=["q_proj", "v_proj"])
    model, report = pulsora.peft.load_adapter(model, folder)
    pulsora.peft.save_adapter(model, folder)

Needs torch, and safetensors for the files.
"""

from pulsora.peft.attach import add_adapters
from pulsora.peft.export import save_adapter
from pulsora.peft.load import Loaded, load_adapter
from pulsora.peft.merge import merge_adapters
from pulsora.peft.register import register
from pulsora.peft.report import AdapterReport, AdapterRow

__all__ = [
    "AdapterReport",
    "AdapterRow",
    "Loaded",
    "add_adapters",
    "load_adapter",
    "merge_adapters",
    "register",
    "save_adapter",
]
