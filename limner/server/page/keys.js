// Keys that work wherever one is on the page, and the way from the text to the results.

import { byId } from "./elements.js";

/** A listener returns whether it has done something. */
export function startKeys({ onText, onResults, onUndo, onCompare }) {
  document.addEventListener("keydown", (event) => {
    const busy = event.target.closest?.("input, textarea, select, dialog");
    if (busy || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "/") {
      event.preventDefault();
      onText();
    } else if ((event.key.toLowerCase() === "u" && onUndo()) || (event.key === "C" && onCompare()))
      event.preventDefault();
  });
  byId("text").addEventListener("keydown", (event) => {
    const atEnd = event.target.selectionEnd === event.target.value.length;
    if (event.key === "ArrowDown" && atEnd && onResults()) event.preventDefault();
  });
}
