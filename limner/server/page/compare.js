// Two or three results side by side: the pictures as they are, what is known of them, and why they were found.

import { explain, sentences, showPicture } from "./api.js";
import { attentionView } from "./attention.js";
import { markButtons, pressMark } from "./bench.js";
import { byId, h } from "./elements.js";
import { alternativeText } from "./facts.js";
import { t } from "./language.js";
import { sureness } from "./results.js";
import { factRows } from "./viewer.js";
import { weightsView } from "./word-weights.js";

const FEWEST = 2;
const MOST = 3;
const SENTENCES = 3;
const dialog = byId("compare-view");
let doing = {};
let chosen = []; // ids, in the order in which they were chosen
let asking = null;

/** `onOpen()`, `onMark(id, mark)`; `onProblem(problem)` says whether it saw to it. */
export function startCompare(handlers) {
  doing = handlers;
  byId("compare").addEventListener("click", doing.onOpen);
  byId("compare-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    asking?.abort();
    byId("columns").replaceChildren();
  });
}

/** Takes a result to the chosen ones, or away; false if there are as many as fit. */
export function choose(id) {
  if (!chosen.includes(id) && chosen.length === MOST) return false;
  chosen = chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id];
  showChosen();
  return true;
}

export const isChosen = (id) => chosen.includes(id);

/** Lets go of what is not among these hits. */
export function keepChosen(hits) {
  const known = new Set(hits.map((hit) => hit.id));
  chosen = chosen.filter((id) => known.has(id));
  showChosen();
}

/** Shows on cards and button what is chosen. */
export function showChosen() {
  for (const button of document.querySelectorAll("#grid .compare"))
    button.setAttribute("aria-pressed", chosen.includes(button.closest("li").dataset.id));
  byId("compare").hidden = chosen.length === 0;
  byId("compare").disabled = chosen.length < FEWEST;
  byId("compare").textContent = t("compareNumber", { n: chosen.length });
}

export function closeCompare() {
  if (dialog.open) dialog.close();
}

/** Opens the chosen ones of an answer; `judged` are marks by id, `hasSentences` whether the store has any. */
export function openCompare({ hits }, text, judged, hasSentences) {
  if (chosen.length < FEWEST || dialog.open) return;
  const compared = hits.filter((hit) => chosen.includes(hit.id)); // in the order of their ranks
  asking = new AbortController();
  byId("columns").replaceChildren(...compared.map((hit) => column(hit, judged[hit.id]?.mark || "")));
  byId("columns").style.setProperty("--number", compared.length);
  dialog.showModal();
  byId("columns").scrollTop = 0;
  tell(compared, text, hasSentences, asking.signal);
}

/** Brings the marks of what is compared up to date. */
export function showComparedMarks(judged) {
  for (const one of dialog.querySelectorAll("section[data-id]"))
    pressMark(one.querySelectorAll(".mark"), judged[one.dataset.id]?.mark);
}

function column(hit, mark) {
  const image = h("img", { alt: alternativeText(hit), draggable: "false" });
  const gone = h("p", { class: "hint", hidden: true }, t("fileGone"));
  const frame = h("div", { class: "whole" }, image, h("div", { class: "overlay" }));
  show(hit.id, image, gone).then(() => {
    // the frame is as large as the picture in it: regions lie over the right places
    if (image.naturalHeight) frame.style.setProperty("--shape", image.naturalWidth / image.naturalHeight);
  });
  return h(
    "section",
    { "data-id": hit.id, "aria-labelledby": `compared-${hit.id}` },
    h("h3", { id: `compared-${hit.id}` }, t("viewerTitle", { rank: hit.rank, sureness: sureness(hit).label })),
    h("div", { class: "compared" }, frame),
    gone,
    h("div", { class: "judge" }, markButtons(mark, alternativeText(hit), (name) => doing.onMark(hit.id, name))),
    h("div", { class: "sentences" }),
    h("dl", { class: "facts" }, factRows(hit)),
    h("div", { class: "why" }),
  );
}

async function show(id, image, gone) {
  if ((await showPicture(image, "images", id)) || !image.isConnected) return;
  gone.hidden = false;
  await showPicture(image, "thumbnails", id);
}

/** Sentences and explanations, one result after the other: the model answers one question at a time. */
async function tell(compared, text, hasSentences, signal) {
  for (const hit of compared) {
    const own = dialog.querySelector(`section[data-id="${hit.id}"]`);
    try {
      if (hasSentences) {
        const found = await sentences({ like: hit.id, k: SENTENCES }, signal);
        if (signal.aborted) return;
        const texts = [...new Set(found.sentences.map((one) => one.text))];
        const list = texts.map((one) => h("li", { dir: "auto" }, one));
        if (texts.length) own.querySelector(".sentences").append(h("h4", {}, t("sentencesThatFit")), h("ul", {}, list));
      }
      if (text) {
        const found = await explain(text, hit.id, signal);
        if (signal.aborted) return;
        const attention = found.attention && (found.attention.of_regions || found.attention.of_words);
        const views = [
          ...(attention ? attentionView(found.attention, own.querySelector(".overlay")) : []),
          ...(found.phrases.length || !attention ? weightsView(found.phrases, found.method) : []),
        ];
        own.querySelector(".why").replaceChildren(...views.filter(Boolean));
      }
    } catch (problem) {
      if (problem.name === "AbortError") return;
      if (doing.onProblem(problem)) return;
      own.querySelector(".why").replaceChildren(
        h("p", { class: "waiting" }, t("noExplanation", { why: problem.detail || problem.message })),
      );
    }
  }
}
