// Faults of the layout: holes in grids of charts, buttons too small for a finger, words broken in two, no time zone.
(() => {
  const poor = [];
  const visible = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;
  for (const grid of document.querySelectorAll(".panels")) {
    const last = [...grid.children].filter(visible).at(-1);
    const gap = last ? grid.getBoundingClientRect().right - last.getBoundingClientRect().right : 0;
    if (Math.abs(gap) > 1) poor.push(`hole of ${gap} pixels after ${last.textContent.slice(0, 30)}`);
  }
  if (innerWidth <= 640)
    for (const button of document.querySelectorAll("button, select")) {
      const { width, height } = button.getBoundingClientRect();
      if (visible(button) && Math.min(width, height) < 31.9)
        poor.push(`${button.textContent.slice(0, 20)} is ${width.toFixed(0)} × ${height.toFixed(0)}`);
    }
  // A word of up to twelve letters stands on one line.
  const range = document.createRange();
  for (const cell of document.querySelectorAll("td, th, .row-label, .note, h2, h3")) {
    for (const node of cell.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE || !visible(cell)) continue;
      for (const { index, 0: word } of node.data.matchAll(/[\p{L}\d]{2,12}(?![\p{L}\d])/gu)) {
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1)
          poor.push(`"${word}" is broken`);
      }
    }
  }
  const shown = document.querySelector(".range").textContent;
  if (!/\d{4}-\d\d-\d\d.* \S+$/.test(shown)) poor.push(`no date or zone in ${shown}`);
  return poor.slice(0, 10);
})();
