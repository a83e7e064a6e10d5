// Replaces the current view with fifty visible charts of two lines and 600 points each.
(async () => {
  const { Panel } = await import(new URL("page/panel.js", document.baseURI));
  const main = document.getElementById("main");
  const grid = document.createElement("div");
  grid.className = "panels";
  main.replaceChildren(grid);
  window.names = ['pegel_received_total{input="collect"}'];
  for (let index = 0; index < 50; index += 1) {
    const name = `bench_${index}`;
    window.names.push(`${name}{line="a"}`, `${name}{line="b"}`);
    grid.append(new Panel({ title: name, unit: "", queries: [{ name, by: ["line"] }] }).element);
  }
})();
