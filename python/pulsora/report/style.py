"""The style of a report, on screens and on paper."""

__all__ = ["CSS"]

CSS = """
body { font: 15px/1.45 system-ui, "Helvetica Neue", Arial, sans-serif; color: #222;
  max-width: 1180px; margin: 0 auto; padding: 1rem; background: #fff; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem; border-bottom: 1px solid #ccc; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
.large, .small { display: grid; gap: .8rem; }
.large { grid-template-columns: repeat(auto-fill, minmax(min(330px, 100%), 1fr)); }
.small { grid-template-columns: repeat(auto-fill, minmax(min(210px, 100%), 1fr)); }
.legend span { display: inline-block; margin-right: 1.2rem; }
.swatch { vertical-align: middle; }
.remark { border-left: 4px solid #e08e0b; padding: .2rem .7rem; background: #fdf6e8; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; margin: .5rem 0; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #e2e2e2; text-align: left;
  vertical-align: top; }
thead th { border-bottom: 1px solid #888; }
tbody th { font-weight: normal; white-space: nowrap; }
.numbers td, .numbers thead th { text-align: right; font-variant-numeric: tabular-nums; }
.numbers td { white-space: nowrap; }
.numbers thead th { vertical-align: bottom; }
.numbers thead .name { text-align: left; }
.numbers .run { white-space: normal; padding-top: .6rem; }
.run small { color: #555; margin-left: .5rem; }
.text td { overflow-wrap: anywhere; min-width: 6rem; }
footer { margin-top: 2rem; color: #666; font-size: .8rem; }
@media (max-width: 1000px) {
  table { font-size: .76rem; }
  th, td { padding: .2rem .35rem; }
}
@media print {
  @page { margin: 14mm; }
  body { font-size: 9.5pt; max-width: none; padding: 0; }
  .large { grid-template-columns: repeat(2, 1fr); }
  .small { grid-template-columns: repeat(3, 1fr); }
  figure, tr { break-inside: avoid; }
  h2, .legend { break-after: avoid; }
  .wide { overflow: visible; }
  .remark { background: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
