"""The style sheet of a report: a light and a dark scheme, and paper."""

# Tables are never squeezed until words break: a table that is too wide scrolls.
STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1b1b; --soft: #595959; --grid: #dcdcdc; --box: #f5f5f5;
  --line-1: #0072b2; --line-2: #c25100; --line-3: #00805c; --line-4: #a8457f;
  --line-5: #7a6a00; --line-6: #5b3fa0; --line-7: #8a3b12; --line-8: #555; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --ink: #e6e6e6; --soft: #a8a8a8; --grid: #3a3d42;
  --box: #202327; --line-1: #56b4e9; --line-2: #e69f00; --line-3: #33c79b; --line-4: #e39bc4;
  --line-5: #d9cf4a; --line-6: #b59cf0; --line-7: #e08a60; --line-8: #b5b5b5; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h1 { overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--grid); }
h3, figcaption { font-size: 1rem; font-weight: 600; margin: 0 0 .3rem; overflow-wrap: anywhere; }
p.note, .soft { color: var(--soft); } li { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: .25rem 1.2rem .25rem 0;
  border-bottom: 1px solid var(--grid); }
th, td.short { white-space: nowrap; } td { min-width: 14rem; overflow-wrap: break-word; } td.short { min-width: 0; }
.charts, .pair { display: grid; gap: 1rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); }
figure { margin: 0; min-width: 0; overflow-x: auto; break-inside: avoid; }
svg { width: 100%; min-width: 26rem; height: auto; }
pre { background: var(--box); padding: .6rem; overflow-x: auto; font-size: .85rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.pair { margin-bottom: 1.5rem; } .pair figcaption { font-weight: 400; }
.statement { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 60rem; }
@media print { :root { --page: #fff; --ink: #000; --soft: #333; --grid: #ccc; --box: #fff; --line-1: #0072b2;
  --line-2: #c25100; --line-3: #00805c; --line-4: #a8457f; --line-5: #7a6a00; --line-6: #5b3fa0; --line-7: #8a3b12;
  --line-8: #555; } body { max-width: none; margin: 0; font-size: 11px; }
  .scroll, figure { overflow: visible; } svg { min-width: 0; } td { min-width: 0; }
  .charts, .pair { grid-template-columns: 1fr 1fr; } pre { border: 1px solid #ccc; } }
""".strip()
