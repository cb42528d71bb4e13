// The results as a grid in rank order, and moving in it by keys.

import { dropPicture, dropPictures, showPicture } from "./api.js";
import { markButtons, pressMark } from "./bench.js";
import { byId, h, icon } from "./elements.js";
import { alternativeText, factsOf, fileOf } from "./facts.js";
import { count, decimal, percent, t } from "./language.js";
import { markOfKey } from "./marks.js";
import { inPlace } from "./place.js";

const grid = byId("grid");
const MOST_KEPT = 400; // pictures in memory from earlier searches
const NEAR = "1500px 0px"; // around the window: pictures in it are loaded, those beyond are let go
const near = new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting }) => hold(target, isIntersecting)), {
  rootMargin: NEAR,
});

/** `onOpen(id)`, `onSimilar(id)`, `onMark(id, mark)`, `onCompare(id)`. */
export function startResults({ onOpen, onSimilar, onMark, onCompare }) {
  grid.addEventListener("click", (event) => {
    const card = event.target.closest("li[data-id]");
    if (!card) return;
    const mark = event.target.closest(".mark")?.dataset.mark;
    if (mark) onMark(card.dataset.id, mark);
    else if (event.target.closest(".compare")) onCompare(card.dataset.id);
    else if (event.target.closest(".similar")) onSimilar(card.dataset.id);
    else if (event.target.closest(".open")) onOpen(card.dataset.id);
  });
  grid.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const card = event.target.closest("li[data-id]");
    if (!card) return;
    if (event.key.toLowerCase() === "m") {
      event.preventDefault();
      onSimilar(card.dataset.id);
    } else if (event.key === "c") {
      event.preventDefault();
      onCompare(card.dataset.id);
    } else if (markOfKey(event.key)) {
      event.preventDefault();
      onMark(card.dataset.id, markOfKey(event.key));
    } else move(event, card);
  });
  grid.addEventListener("focusin", (event) => setStop(event.target.closest("li[data-id]")));
}

/** Draws an answer's hits; `judged` are marks by id. */
export function showHits(answer, judged = {}) {
  dropPictures(MOST_KEPT);
  near.disconnect();
  grid.replaceChildren();
  addHits(answer, 0, judged);
  setStop(grid.querySelector("li[data-id]"));
}

/** Draws the hits of an answer from this place on, behind those that are there. */
export function addHits(answer, from, judged = {}) {
  const cards = answer.hits.slice(from).map((hit) => card(hit, answer));
  // A line and no veil: the colours of a picture are what it is judged by, also where the model is not sure.
  const first = answer.hits.findIndex((hit) => isUnlikely(hit, answer));
  const shown = first < from ? cards : cards.toSpliced(first - from, 0, border(answer, first));
  grid.append(...shown);
  cards.forEach((one) => near.observe(one));
  showMarks(judged);
}

/** A picture near the window is there, one that is far from it is not: long lists hold no more than short ones. */
function hold(card, wanted) {
  const image = card.querySelector(".frame img");
  if (!wanted) {
    if (!image.hasAttribute("src")) return;
    image.removeAttribute("src");
    image.dataset.shows = "";
    dropPicture("thumbnails", card.dataset.id);
  } else if (!image.hasAttribute("src"))
    showPicture(image, "thumbnails", card.dataset.id).then((shown) => {
      if (shown) fitGrid(image);
      else if (image.dataset.shows) image.parentElement.classList.add("missing");
    });
}

/** Lets each result say which rank it had before re-ranking, or no longer. */
export const showRanks = (wanted) => (grid.dataset.ranks = wanted);

function rankBefore(hit, answer) {
  if (!answer.hits.some((one) => one.rank_before != null)) return null;
  const was = hit.rank_before;
  const key = was == null ? "notReranked" : was > hit.rank ? "movedUp" : was < hit.rank ? "movedDown" : "notMoved";
  return h("span", { class: `was ${key}`, title: t("ranksTitle") }, t(key, { rank: was ?? 0 }));
}

/** Shows which results are marked. */
export function showMarks(judged) {
  for (const one of grid.querySelectorAll("li[data-id]")) {
    const mark = judged[one.dataset.id]?.mark || "";
    one.dataset.marked = mark;
    pressMark(one.querySelectorAll(".mark"), mark);
  }
}

const isUnlikely = (hit, answer) =>
  hit.probability != null && answer.threshold != null && hit.probability < answer.threshold;

const border = (answer, above) =>
  h(
    "li",
    { class: "border" },
    h("span", {}, t(above ? "belowLine" : "allBelow", { share: percent(answer.threshold) })),
  );

/** Empty cards while the first answer is under way. */
export function showSkeleton(number) {
  near.disconnect();
  grid.replaceChildren(
    ...Array.from({ length: number }, () => h("li", { class: "skeleton", "aria-hidden": "true" })),
  );
}

export function clearHits() {
  near.disconnect();
  grid.replaceChildren();
}

export const holdsCards = () => grid.querySelector("li[data-id]") !== null;

const cardOf = (id) => [...grid.querySelectorAll("li[data-id]")].find((one) => one.dataset.id === id);

/** Focus to the card of this picture, or to the first; `still` leaves the window where it is. */
export function focusCard(id, { still = !id } = {}) {
  (cardOf(id) || grid.querySelector("li[data-id]"))?.querySelector(".open").focus({ preventScroll: still });
}

/** The Tab key leads to this card. */
export const setStopAt = (id) => setStop(cardOf(id));

let question = "described"; // what the store's probabilities answer

/** From now on percents are named by what /v1/info says that they answer. */
export const setQuestion = (asked) => (question = asked ?? "described");

/** How sure the answer is of a hit: {label, share}, `share` null where only a cosine is known. */
export function sureness(hit) {
  if (hit.probability != null)
    return { label: t(question === "fits" ? "fits" : "match", { share: percent(hit.probability) }), share: hit.probability };
  if (hit.confidence != null) return { label: t("sure", { share: percent(hit.confidence) }), share: hit.confidence };
  if (hit.score == null) return { label: "", share: null };
  return { label: t("score", { score: decimal(hit.score, 3) }), share: null };
}

const fieldName = (field) =>
  ({ name: t("inName"), folder: t("inFolder"), identity: t("inIdentity"), fact: t("inFact"), sentence: t("inSentence") })[field];

function card(hit, answer) {
  const { label, share } = sureness(hit);
  const image = h("img", {
    alt: alternativeText(hit),
    decoding: "async",
    draggable: "false",
  });
  const frame = h(
    "span",
    { class: "frame" },
    image,
    hit.group > 1 && h("span", { class: "group", title: t("inGroup") }, `×${count(hit.group)}`),
  );
  const meter = h("span", { class: "meter" }, h("span"));
  meter.firstChild.style.width = `${100 * (share ?? 0)}%`;
  return h(
    "li",
    { "data-id": hit.id, class: isUnlikely(hit, answer) && "unlikely" },
    h(
      "button",
      { type: "button", class: "open", tabindex: "-1" },
      frame,
      hit.rank != null &&
        h(
          "span",
          { class: "line" },
          h("span", { class: "rank" }, count(hit.rank)),
          h("strong", {}, label),
          share !== null && h("span", { class: "score", title: t("scoreTitle") }, decimal(hit.score, 2)),
        ),
      share !== null && meter,
      rankBefore(hit, answer),
      hit.words_in && h("span", { class: "why" }, t("wordsIn", { where: hit.words_in.map(fieldName).join(", ") })),
      h("span", { class: "known", dir: "auto" }, [factsOf(hit), hit.path && fileOf(hit)].filter(Boolean).join("\u00a0· ") || hit.name),
    ),
    h(
      "button",
      {
        type: "button",
        class: "similar icon",
        tabindex: "-1",
        title: t("moreLikeKey"),
        "aria-label": t("moreLike", { picture: alternativeText(hit) }),
      },
      icon("similar"),
    ),
    h(
      "div",
      { class: "judge" },
      markButtons("", alternativeText(hit), null, { tabindex: "-1" }),
      h(
        "button",
        {
          type: "button",
          class: "icon compare",
          tabindex: "-1",
          title: t("compareKey"),
          "aria-label": t("compareThis", { picture: alternativeText(hit) }),
          "aria-pressed": "false",
        },
        icon("compare"),
      ),
    ),
  );
}

/** Frames take the shape of the store's pictures: standing people are not shown in squares. */
function fitGrid(image) {
  if (grid.dataset.fitted || !image.naturalHeight) return;
  const shapes = [...grid.querySelectorAll("img")]
    .filter((one) => one.naturalHeight)
    .map((one) => one.naturalWidth / one.naturalHeight)
    .sort((a, b) => a - b);
  if (shapes.length < Math.min(4, grid.children.length)) return;
  grid.dataset.fitted = "true";
  const shape = Math.min(1.5, Math.max(0.5, shapes[shapes.length >> 1])).toFixed(3);
  inPlace(() => grid.style.setProperty("--shape", shape));
}

/** One card is in the order of the Tab key; the arrows go to the others. */
function setStop(card) {
  if (!card) return;
  for (const one of grid.querySelectorAll(".open[tabindex='0']")) one.tabIndex = -1;
  card.querySelector(".open").tabIndex = 0;
}

function move(event, card) {
  const cards = [...grid.querySelectorAll("li[data-id]")];
  const columns = cards.filter((one) => one.offsetTop === cards[0].offsetTop).length;
  const place = cards.indexOf(card);
  const onwards = getComputedStyle(grid).direction === "rtl" ? -1 : 1;
  const goals = {
    ArrowLeft: place - onwards,
    ArrowRight: place + onwards,
    ArrowUp: place - columns,
    ArrowDown: place + columns,
    Home: 0,
    End: cards.length - 1,
  };
  if (!(event.key in goals)) return;
  event.preventDefault();
  cards[goals[event.key]]?.querySelector(".open").focus();
}
