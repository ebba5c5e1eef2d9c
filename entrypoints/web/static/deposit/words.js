// Elements, and amounts as people write them.

// element("td", { class: "number" }, "a text", anotherElement)
export function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...content.filter((one) => one !== null && one !== undefined));
  return made;
}

export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit++; }
  return `${unit && count < 100 ? count.toFixed(1) : Math.round(count).toLocaleString("en")} ${units[unit]}`;
}

export const counted = (count, one, several = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : several}`;

export function duration(seconds) {
  if (seconds < 60) return "less than a minute";
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return counted(minutes, "minute");
  return `${counted(Math.floor(minutes / 60), "hour")} ${minutes % 60 ? counted(minutes % 60, "minute") : ""}`.trim();
}

export function some(names, most = 5) {
  const rest = names.length - most;
  return rest > 0 ? `${names.slice(0, most).join(", ")} and ${rest.toLocaleString("en")} more` : names.join(", ");
}
