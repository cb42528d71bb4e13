// Elements from data. Text only ever becomes text nodes, so nothing a server or file says is read as HTML.

/** h("p", {class: "note", onclick: f, hidden: true}, "text", child): attributes by name, `on…` as listeners. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** An icon of the sprite in index.html. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

export const byId = (id) => document.getElementById(id);

export const spelled = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** Follows a link on the page itself; with a modifier it opens elsewhere, as links do. */
export const onLink = (selector, act) =>
  document.querySelector(selector).addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    act();
  });
