// The search box: words, a picture, and how much each counts.

import { showPicture } from "./api.js";
import { keptPicture } from "./address.js";
import { byId } from "./elements.js";
import { pictureOf } from "./given-picture.js";
import { percent, t } from "./language.js";

const text = byId("text");
const basis = byId("basis");
const weight = byId("weight");
const drop = byId("drop");

/** Calls `onSearch(text)`, `onPicture(file)`, `onNoPicture()` and `onWeight(weight)`. */
export function startForm({ onSearch, onPicture, onNoPicture, onWeight }) {
  const submit = (event) => {
    event.preventDefault();
    if (matchMedia("(hover: none)").matches) text.blur(); // a phone's keyboard would hide the results
    onSearch(typed());
  };
  byId("search").addEventListener("submit", submit);
  text.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && submit(event));
  text.addEventListener("input", grow);
  window.addEventListener("resize", grow);
  basis.querySelector("button").addEventListener("click", () => {
    onNoPicture();
    text.focus();
  });
  weight.addEventListener("input", sayWeight);
  weight.addEventListener("change", () => onWeight(Number(weight.value)));
  byId("file").addEventListener("change", (event) => {
    const [file] = event.target.files;
    event.target.value = ""; // so that the same file can be chosen again
    if (file) onPicture(file);
  });
  document.addEventListener("paste", (event) => {
    const file = pictureOf(event.clipboardData);
    const words = event.clipboardData.getData("text/plain"); // word processors copy text and its picture
    if (!file || words) return;
    event.preventDefault();
    onPicture(file);
  });
  startDrop(onPicture);
}

export const typed = () => text.value.trim();

/** Shows what the address says; `unsent`: words that were typed since, and not searched for, stay. */
export function fillForm(state, { unsent = false } = {}) {
  if (!unsent && text.value.trim() !== state.text) text.value = state.text;
  grow();
  const picture = keptPicture(state.picture);
  const image = basis.querySelector("img");
  basis.hidden = !picture && !state.like;
  if (picture) {
    image.dataset.shows = "";
    delete image.dataset.awaited;
    image.src = picture.url;
    basis.querySelector("span").textContent = picture.name;
  } else if (state.like) {
    showPicture(image, "thumbnails", state.like);
    basis.querySelector("span").textContent = t("likeThis");
  }
  byId("balance").hidden = basis.hidden || !state.text;
  weight.value = state.weight;
  sayWeight();
}

export function focusText() {
  text.focus();
  text.select();
}

function sayWeight() {
  const words = Number(weight.value);
  weight.setAttribute("aria-valuetext", t("weightSaid", { words: percent(words), picture: percent(1 - words) }));
}

/** Long descriptions make the box taller instead of scrolling in it. */
function grow() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

function startDrop(onPicture) {
  let depth = 0; // dragenter and dragleave also come from every child
  const holdsFiles = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  const show = (shown) => drop.classList.toggle("shown", shown);
  document.addEventListener("dragenter", (event) => {
    if (!holdsFiles(event)) return;
    depth += 1;
    show(true);
  });
  document.addEventListener("dragleave", (event) => {
    if (!holdsFiles(event)) return;
    depth = Math.max(0, depth - 1);
    if (depth === 0) show(false);
  });
  document.addEventListener("dragover", (event) => {
    if (holdsFiles(event)) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    depth = 0;
    show(false);
    if (!holdsFiles(event)) return;
    event.preventDefault();
    const file = pictureOf(event.dataTransfer);
    if (file) onPicture(file);
  });
}
