// In place of the stream: the test says when a tick comes, and how much later it is than the one before.
window.EventSource = class {
  constructor(url) {
    window.stream = this;
    this.url = url;
    this.isNew = true;
  }

  close() {
    this.closed = true;
  }
};

/** So many ticks, half a second apart, of all given series; `window.value` gives their values, if it is set. */
window.makeTicks = async (names, count) => {
  window.tickTime ??= Math.floor(Date.now() / 500) * 500;
  for (let made = 0; made < count; made += 1) {
    const { stream } = window;
    if (!stream || stream.closed || !stream.onmessage) {
      await new Promise((go) => setTimeout(go, 20));
      made -= 1;
      continue;
    }
    window.tickTime += 500;
    const { value = (at, time) => time / 1000 + at + Math.random() } = window;
    const values = names.map((_, at) => value(at, window.tickTime));
    const event = {
      at: window.tickTime,
      new: stream.isNew ? names : [],
      ids: names.map((_, at) => at),
      ago: names.map(() => 0),
      values,
    };
    stream.isNew = false;
    stream.onmessage({ data: JSON.stringify(event) });
    if (made % 50 === 0) await new Promise((go) => requestAnimationFrame(go));
  }
  await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
};
