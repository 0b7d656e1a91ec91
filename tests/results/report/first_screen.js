// The texts of the upper part of the window that can be read: at least 12 px, not clipped, contrast 4.5 or more.
share => {
  const channels = text => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(one => one / 255).map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (one, other) => { const [low, high] = [light(one), light(other)].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
  // The colours behind an element: those of a gradient, or the first that is not transparent.
  const grounds = element => {
    for (let one = element; one; one = one.parentElement) {
      const style = getComputedStyle(one);
      const colours = [...style.backgroundImage.matchAll(/rgba?\([^)]*\)/g)].map(match => channels(match[0])).filter(colour => colour[3] !== 0);
      if (colours.length) return colours;
      const plain = channels(style.backgroundColor);
      if (plain[3] !== 0) return [plain];
    }
    return [[255, 255, 255]];
  };
  const clipped = (element, area) => {
    for (let one = element; one && one !== document.body; one = one.parentElement) {
      if (getComputedStyle(one).overflowX === 'visible') continue;
      const box = one.getBoundingClientRect();
      if (area.left < box.left - 1 || area.right > box.right + 1 || area.top < box.top - 1 || area.bottom > box.bottom + 1) return true;
    }
    return false;
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const element = node.parentElement, range = document.createRange();
    range.selectNodeContents(node);
    const area = range.getBoundingClientRect(), style = getComputedStyle(element);
    if (!node.textContent.trim() || !area.width || area.bottom > innerHeight * share || area.right > innerWidth || area.left < 0) continue;
    if (parseFloat(style.fontSize) < 12 || style.visibility !== 'visible' || clipped(element, area)) continue;
    if (grounds(element).some(ground => contrast(channels(style.color), ground) < 4.5)) continue;
    found.push(node.textContent);
  }
  return found.join('\n');
}
