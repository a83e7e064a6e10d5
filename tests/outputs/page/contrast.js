// Texts that are harder to read than WCAG AA allows: the contrast of each visible text with what is behind it.
(() => {
  const parts = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const channel = (value) =>
    value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([red, green, blue]) =>
    0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  const over = ([red, green, blue, alpha = 1], under) =>
    [red, green, blue].map((value, at) => value * alpha + under[at] * (1 - alpha));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = parts(getComputedStyle(at).backgroundColor);
      if (layer.length < 3 || layer[3] === 0) continue;
      layers.push(layer);
      if ((layer[3] ?? 1) === 1) break;
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (
      !walker.currentNode.textContent.trim() ||
      !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })
    )
      continue;
    const style = getComputedStyle(element);
    const under = behind(element);
    const [one, two] = [light(over(parts(style.color), under)), light(under)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (two + 0.05);
    const large =
      parseFloat(style.fontSize) >= 24 ||
      (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5))
      poor.push(
        `${walker.currentNode.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)} (${style.color} on ${under.map(Math.round)})`,
      );
  }
  return poor;
})();
