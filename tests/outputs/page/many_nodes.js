// Answers of a parent with many nodes; their number is in `window.nodeCount`, or 2000.
(() => {
  const count = window.nodeCount ?? 2000;
  let asked = 0;
  let open = 0;
  window.openMax = 0;
  const row = (at) => {
    const state = at % 500 === 5 ? "late" : at % 500 === 7 ? "lost" : at % 1000 === 9 ? "refused" : "up";
    const standsOut = at % 400 === 2;
    return {
      node: at === 0 ? "head1" : `nid${String(at).padStart(6, "0")}`,
      parent: at === 0 ? "" : "head1",
      state,
      lag_ms: state === "lost" ? null : 12,
      clock_offset_ms: 3,
      version: "0.1.0",
      is_parent: at === 0,
      busy: state === "lost" ? null : standsOut ? 97 : (at * 7 + asked * 3) % 60,
      memory: (at * 13) % 100,
      pressure: 0,
      gpu: null,
      network: at * 1e6,
      temperature: 50,
      load: at % 64,
      outliers: standsOut ? [{ figure: "busy", value: 97, median: 30 }] : [],
      problem: state === "refused" ? "<b>duplicate</b> name" : "",
    };
  };
  const real = window.fetch;
  window.fetch = async (address, ...rest) => {
    const url = new URL(address, document.baseURI);
    if (!url.pathname.endsWith("/api/v1/nodes")) {
      // This agent is no parent: it does not know the parameter by which the page restricts requests to it.
      url.searchParams.delete("nodes");
      return real(url, ...rest);
    }
    asked += 1;
    open += 1;
    window.openMax = Math.max(window.openMax, open);
    await new Promise((done) => setTimeout(done, 20));
    open -= 1;
    const nodes = Array.from({ length: count }, (_, at) => row(at));
    const metric = url.searchParams.get("metric");
    // Twice as much with each answer: an increase that depends on the node.
    if (metric) nodes.forEach((each, at) => (each.value = 1000 + at * asked));
    window.asked = asked;
    const answered = nodes.filter((each) => each.state === "up").length;
    return new Response(JSON.stringify({ node: "head1", nodes }), {
      headers: { "pegel-nodes": `answered=${answered} expected=${count} late=nid000005` },
    });
  };
  const Source = window.EventSource;
  window.EventSource = class extends Source {
    constructor(address) {
      const url = new URL(address, document.baseURI);
      url.searchParams.delete("nodes");
      super(url);
    }
  };
})();
