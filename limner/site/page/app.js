// The page of a site: a text finds pictures, and nothing but files of this site is asked for.

import { byId, h } from "./elements.js";
import { LANGUAGES, clock, count, currentLanguage, decimal, setLanguage, t, translate } from "./language.js";
import { load, pictures as facts, site } from "./parts.js";
import { best, vectorOf } from "./rank.js";

const PART = 24;
const STARTS = 12; // pictures on the empty page
const grid = byId("grid");
const text = byId("text");
const viewer = byId("viewer");

let parts; // a promise of what searches need
let hits = [];
let shown = null; // the place of the hit that is open
let asked = 0;

const readAddress = () => {
  const values = new URLSearchParams(location.hash.slice(1));
  const like = Number.parseInt(values.get("like"), 10);
  return {
    text: (values.get("q") || "").slice(0, text.maxLength),
    like: like >= 0 && like < site.pictures ? like : null,
    k: Math.min(site.pictures, Math.max(1, Number.parseInt(values.get("k"), 10) || PART)),
  };
};

function writeAddress(state, replace = false) {
  const values = new URLSearchParams();
  if (state.text) values.set("q", state.text);
  if (state.like !== null) values.set("like", state.like);
  if (state.k !== PART) values.set("k", state.k);
  history[replace ? "replaceState" : "pushState"](null, "", `${location.pathname}${location.search}#${values}`);
}

const needed = () => (parts ??= load(showProgress).catch((error) => {
  parts = undefined; // another search tries again
  throw error;
}));

function showProgress(share) {
  if (document.body.hasAttribute("data-busy")) byId("status").textContent = t("loading", { share: Math.floor(100 * share) });
}

const notice = (kind, title, said) =>
  byId("notice").replaceChildren(h("div", { class: `notice ${kind}`, role: "alert" }, h("h2", {}, title), h("p", {}, said)));

/** Answers what the address asks for. */
async function answer() {
  const state = readAddress();
  const mine = ++asked;
  text.value = state.text;
  byId("notice").replaceChildren();
  if (!state.text.trim() && state.like === null) {
    hits = [];
    grid.replaceChildren();
    byId("more").hidden = true;
    byId("status").textContent = "";
    document.body.dataset.state = "idle";
    return welcome();
  }
  document.body.dataset.state = "results";
  document.body.dataset.busy = "";
  try {
    const { read, encode, vectors } = await needed();
    if (mine !== asked) return;
    let query;
    if (state.like !== null) query = vectorOf(vectors, state.like);
    else {
      const { ids, known } = read(state.text);
      if (!known) throw new UnknownWords();
      byId("status").textContent = t("searching");
      query = await encode(ids);
      if (mine !== asked) return;
    }
    const began = performance.now();
    hits = best(vectors, query, state.k, state.like ?? -1);
    document.body.dataset.ranked = performance.now() - began;
    await draw(state);
  } catch (error) {
    if (mine !== asked) return;
    hits = [];
    grid.replaceChildren();
    byId("more").hidden = true;
    byId("status").textContent = "";
    if (error instanceof UnknownWords) notice("quiet", t("unknownTitle"), t("unknown"));
    else notice("trouble", t("brokenTitle"), t("broken", { reason: error.message }));
  } finally {
    if (mine === asked) delete document.body.dataset.busy;
  }
}

/** Some pictures of all to start from. */
async function welcome() {
  const mine = asked;
  const pictures = await facts();
  if (mine !== asked) return;
  const number = Math.min(STARTS, site.pictures);
  const rows = Array.from({ length: number }, (_, place) => Math.floor((place * site.pictures) / number));
  const start = (row) => {
    const name = nameOf(pictures, row);
    const onclick = () => ask({ text: "", like: row, k: PART });
    return h("button", { type: "button", onclick }, h("img", { src: fileOf(pictures, row, "thumbnails"), alt: t("likeThis", { name }) }));
  };
  byId("notice").replaceChildren(
    h("div", { class: "welcome" }, h("h2", {}, t("some")), h("div", { class: "starts" }, rows.map(start))),
  );
}

class UnknownWords extends Error {}

async function draw(state) {
  const { pictures } = await needed();
  grid.replaceChildren(...hits.map((hit, place) => card(pictures, hit, place)));
  const first = grid.querySelector("img");
  first?.addEventListener("load", () => grid.style.setProperty("--shape", shapeOf(first)), { once: true });
  byId("status").textContent =
    state.like === null ? t("found", { n: hits.length, all: site.pictures }) : t("similarTo", { name: nameOf(pictures, state.like) });
  byId("more").hidden = hits.length >= site.pictures - (state.like === null ? 0 : 1);
}

const shapeOf = (image) => Math.min(2, Math.max(0.5, image.naturalWidth / image.naturalHeight || 0.75));
const nameOf = (pictures, row) => pictures.name?.[row] ?? t("picture", { number: row + 1 });

/** Where a picture of a row lies: its number in thousands and its number. */
function fileOf(pictures, row, kind) {
  const number = pictures.number[row];
  const digits = (value, width) => String(value).padStart(width, "0");
  return new URL(`../${kind}/${digits(Math.floor(number / 1000), 3)}/${digits(number, 6)}.jpg`, import.meta.url).href;
}

function card(pictures, hit, place) {
  const name = nameOf(pictures, hit.row);
  return h(
    "li",
    { "data-row": hit.row },
    h(
      "button",
      { type: "button", class: "open", onclick: () => open(place) },
      h("span", { class: "frame" }, h("img", { src: fileOf(pictures, hit.row, "thumbnails"), alt: name, loading: "lazy", decoding: "async" })),
      h("span", { class: "line" }, h("span", { class: "rank" }, count(place + 1)), h("strong", {}, t("score", { score: decimal(hit.score, 3) }))),
      h("span", { class: "known", dir: "auto" }, pictures.identity?.[hit.row] ?? name),
    ),
  );
}

async function open(place) {
  const { pictures } = await needed();
  const hit = hits[place];
  shown = place;
  const image = viewer.querySelector("img");
  const name = nameOf(pictures, hit.row);
  image.alt = name;
  image.addEventListener("load", () => fit(image), { once: true });
  image.src = fileOf(pictures, hit.row, site.full ? "full" : "thumbnails");
  byId("viewer-title").textContent = name;
  const facts = [
    ["rank", count(place + 1)],
    ["scoreName", decimal(hit.score, 3)],
    ["identity", pictures.identity?.[hit.row]],
    ["taken", pictures.taken?.[hit.row] && clock(pictures.taken[hit.row])],
  ].filter(([, value]) => value != null);
  byId("facts").replaceChildren(...facts.flatMap(([key, value]) => [h("dt", {}, t(key)), h("dd", { dir: "auto" }, value)]));
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === hits.length - 1;
  if (!viewer.open) viewer.showModal();
}

/** No more than twice its size: a thumbnail has no more to show. */
function fit(image) {
  image.parentElement.style.setProperty("--shape", image.naturalWidth / image.naturalHeight || 1);
  image.parentElement.style.setProperty("--widest", `${2 * image.naturalWidth}px`);
}

function ask(state, replace = false) {
  writeAddress(state, replace);
  answer();
}

/** Focus to the card `step` places further. */
function move(step) {
  const cards = [...grid.querySelectorAll(".open")];
  const place = cards.indexOf(document.activeElement);
  if (place >= 0) cards[Math.min(cards.length - 1, Math.max(0, place + step))].focus();
}

const columns = () => getComputedStyle(grid).gridTemplateColumns.split(" ").length;

function showTexts() {
  translate();
  const day = new Date(`${site.made}T00:00`).toLocaleDateString(currentLanguage(), { dateStyle: "long" });
  byId("stock").textContent = t("stock", { n: site.pictures, day });
  byId("copy").textContent = t("copy");
  byId("model").textContent = `${site.system} ${site.model}${site.reranks ? ` · ${t("notReranked")}` : ""}`;
}

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  ask({ text: text.value.trim(), like: null, k: PART });
});
text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("search").requestSubmit();
});
// What a search needs comes while somebody types.
text.addEventListener("input", () => needed().catch(() => {}), { once: true });
byId("more").addEventListener("click", () => {
  const state = readAddress();
  ask({ ...state, k: Math.min(site.pictures, state.k + PART) }, true);
});
byId("close").addEventListener("click", () => viewer.close());
byId("similar").addEventListener("click", () => {
  const like = hits[shown].row;
  viewer.close();
  ask({ text: "", like, k: PART });
});
byId("previous").addEventListener("click", () => open(shown - 1));
byId("next").addEventListener("click", () => open(shown + 1));
viewer.addEventListener("close", () => grid.querySelectorAll(".open")[shown]?.focus());
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target === text) return;
  const rtl = getComputedStyle(document.body).direction === "rtl" ? -1 : 1;
  if (viewer.open) {
    const step = { ArrowLeft: -rtl, ArrowRight: rtl }[event.key];
    if (step && hits[shown + step]) open(shown + step);
  } else if (event.key === "/") {
    event.preventDefault();
    text.focus();
  } else {
    const step = { ArrowLeft: -rtl, ArrowRight: rtl, ArrowUp: -columns(), ArrowDown: columns() }[event.key];
    if (step && document.activeElement?.closest("#grid")) {
      event.preventDefault();
      move(step);
    }
  }
});
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  byId("theme").setAttribute("aria-pressed", !dark);
  try {
    localStorage.setItem("limner.theme", root.dataset.theme);
  } catch {
    // Storage may be forbidden.
  }
});
const language = byId("language");
language.append(...Object.entries(LANGUAGES).map(([name, own]) => h("option", { value: name, lang: name }, own)));
language.value = currentLanguage();
language.addEventListener("change", async () => {
  await setLanguage(language.value);
  showTexts();
  answer();
});
addEventListener("popstate", answer);

showTexts();
answer();
