// One result, large: its facts, and why it was found.

import { explain, pictureUrl, showPicture } from "./api.js";
import { attentionView } from "./attention.js";
import { markButtons, pressMark } from "./bench.js";
import { deletion } from "./changes.js";
import { beside } from "./conditions.js";
import { byId, h, icon, spelled } from "./elements.js";
import { alternativeText, fileOf } from "./facts.js";
import { conditionFor } from "./filters.js";
import { clock, count, decimal, percent, t } from "./language.js";
import { markOfKey } from "./marks.js";
import { partOf } from "./part.js";
import { sureness } from "./results.js";
import { weightsView } from "./word-weights.js";

const dialog = byId("viewer");
const stage = dialog.querySelector(".stage");
const picture = dialog.querySelector(".picture");
const SWIPE = 50; // pixels across that a finger moves for the next picture
const LARGEST = 5; // times its own pixels that a small picture is enlarged
let doing = {};
let asking = null;
let shownId = null;
let left = -Infinity; // when the picture was last alone
let touched = null; // where a finger came down on the picture
let part = null; // the box on the picture, while there is one

/** `onClose()`, `onStep(±1)`, `onSimilar(id)`, `onPart(file)`, `onWhere(condition)`, `onMark(id, mark)`, `onNote(id, note)`; `onProblem(problem)` says whether it saw to it. */
export function startViewer(handlers) {
  doing = handlers;
  byId("close").addEventListener("click", doing.onClose);
  byId("previous").addEventListener("click", () => doing.onStep(-1));
  byId("next").addEventListener("click", () => doing.onStep(1));
  byId("whole").addEventListener("click", toggleWhole);
  picture.addEventListener("click", (event) => part || event.target.closest("button") || toggleWhole());
  dialog.addEventListener("fullscreenchange", () => document.fullscreenElement || endWhole());
  stage.addEventListener("pointerdown", (event) => (touched = event.pointerType === "touch" && !part ? event : null));
  stage.addEventListener("pointerup", swipe);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    // one Esc that ends the whole screen is no second one that closes
    if (!endWhole() && event.timeStamp - left > 300) doing.onClose();
  });
  dialog.addEventListener("close", () => shownId && doing.onClose()); // where the browser did not ask
  dialog.addEventListener("click", (event) => event.target === dialog && doing.onClose());
  dialog.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, textarea");
    if (typing || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowLeft") doing.onStep(-1);
    else if (event.key === "ArrowRight") doing.onStep(1);
    else if (event.key.toLowerCase() === "f") toggleWhole();
    else if (event.key.toLowerCase() === "m") doing.onSimilar(shownId);
    else if (event.key.toLowerCase() === "u") doing.onUndo();
    else if (markOfKey(event.key)) doing.onMark(shownId, markOfKey(event.key));
    else return;
    event.preventDefault();
  });
}

/** Opens, or changes to, hit number `place` of an answer; `text` is what was searched for, `known` its mark and note. */
export function openViewer({ hits, complete }, place, text, known) {
  const hit = hits[place];
  const changes = hit.id !== shownId;
  shownId = hit.id;
  showJudgement(hit, known, changes);
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === hits.length - 1 && complete;
  if (!dialog.open) dialog.showModal();
  if (!changes) return;
  endPart();
  byId("viewer-title").textContent = hit.rank == null ? fileOf(hit) : t("viewerTitle", { rank: hit.rank, sureness: sureness(hit).label });
  byId("facts").replaceChildren(...factRows(hit, doing.onWhere));
  byId("actions").replaceChildren(...actions(hit));
  showLarge(hit);
  showWhy(hit, text);
  dialog.querySelector(".body").scrollTop = 0;
}

/** The mark and the note of the result that is shown. */
export function showJudgement(hit, known, fresh = true) {
  if (hit.id !== shownId) return;
  const buttons = byId("viewer-marks");
  if (!fresh) return pressMark(buttons.children, known?.mark);
  buttons.replaceChildren(...markButtons(known?.mark, alternativeText(hit), (mark) => doing.onMark(hit.id, mark)));
  const note = h("textarea", {
    id: "viewer-text",
    rows: "2",
    maxlength: "1000",
    dir: "auto",
    placeholder: t("note"),
    "aria-label": t("noteAboutThis"),
    oninput: (event) => doing.onNote(hit.id, event.target.value.trim()),
  });
  note.value = known?.note || "";
  byId("viewer-words").replaceChildren(note);
}

export const shownInViewer = () => shownId;

export function closeViewer() {
  const was = shownId;
  shownId = null;
  endPart();
  endWhole();
  asking?.abort();
  if (dialog.open) dialog.close();
  return was;
}

/** The picture alone, on the whole screen or, where a browser does not give that, in the whole window. */
function toggleWhole() {
  if (endWhole()) return;
  dialog.classList.add("whole");
  // what had the focus may be hidden now, and keys are heard inside of the dialog
  stage.focus();
  stage.requestFullscreen?.().catch(() => {});
}

/** Back to the picture and what is known of it; whether it was alone. */
function endWhole() {
  const was = dialog.classList.contains("whole");
  if (was) left = performance.now();
  dialog.classList.remove("whole");
  if (document.fullscreenElement) document.exitFullscreen();
  return was;
}

function swipe(event) {
  const [across, down] = touched ? [event.clientX - touched.clientX, event.clientY - touched.clientY] : [0, 0];
  touched = null;
  if (Math.abs(across) > Math.max(SWIPE, 2 * Math.abs(down))) doing.onStep(across < 0 ? 1 : -1);
}

function endPart() {
  part?.end();
  part = null;
}

/** A box on the picture, or none any more. */
function togglePart(toggle) {
  const line = byId("part");
  if (part) {
    endPart();
    line.replaceChildren();
  } else {
    part = partOf(picture, picture.querySelector("img"), doing.onPart);
    line.replaceChildren(h("span", { class: "hint" }, t("partHint")), part.button);
  }
  toggle.setAttribute("aria-pressed", part !== null);
}

async function showLarge(hit) {
  const image = picture.querySelector("img");
  const note = byId("viewer-note");
  image.alt = alternativeText(hit);
  note.hidden = true;
  byId("overlay").replaceChildren();
  picture.classList.add("loading");
  let shown = await showPicture(image, "images", hit.id);
  if (shownId !== hit.id) return;
  if (!shown) {
    note.textContent = t("fileGone");
    note.hidden = false;
    byId("actions").querySelector("a")?.remove(); // its full size cannot be had either
    shown = await showPicture(image, "thumbnails", hit.id);
    if (shownId !== hit.id) return;
  }
  picture.classList.remove("loading");
  if (!shown) return;
  picture.style.setProperty("--shape", image.naturalWidth / image.naturalHeight);
  picture.style.setProperty("--widest", `${LARGEST * image.naturalWidth}px`);
}

async function showWhy(hit, text) {
  const why = byId("why");
  asking?.abort();
  if (!text) {
    why.replaceChildren(...askForWords(hit));
    return;
  }
  const question = (asking = new AbortController());
  why.setAttribute("aria-busy", "true");
  why.replaceChildren(h("p", { class: "waiting" }, t("lookingWhy")));
  try {
    const found = await explain(text, hit.id, question.signal);
    if (question.signal.aborted) return;
    const attention = found.attention && (found.attention.of_regions || found.attention.of_words);
    why.replaceChildren(
      ...[
        ...(attention ? attentionView(found.attention, byId("overlay")) : []),
        ...(found.phrases.length || !attention ? weightsView(found.phrases, found.method) : []),
      ].filter(Boolean),
    );
  } catch (problem) {
    if (problem.name === "AbortError" || doing.onProblem(problem)) return;
    why.replaceChildren(
      h("p", { class: "waiting" }, t("noExplanation", { why: problem.detail || problem.message })),
    );
  } finally {
    if (asking === question) why.removeAttribute("aria-busy");
  }
}

/** A search by picture has no words to explain; one may give some. */
function askForWords(hit) {
  const input = h("input", { type: "text", id: "why-text", dir: "auto", placeholder: t("whyHint") });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) showWhy(hit, input.value.trim());
  };
  return [
    h("h3", {}, t("explain")),
    h(
      "form",
      { class: "where", onsubmit: submit },
      h("label", { class: "unseen", for: "why-text" }, t("whyLabel")),
      input,
      h("button", { type: "submit" }, t("explain")),
    ),
    h("p", { class: "caption" }, t("whyCaption")),
  ];
}

/** What is known of a hit, as rows of a <dl>; `onWhere(condition)` gets what a filter would be. */
export function factRows(hit, onWhere = null) {
  const row = (name, value, condition) => [
    h("dt", { dir: "auto" }, name),
    h(
      "dd",
      {},
      h("span", { dir: "auto" }, value),
      onWhere &&
        condition &&
        h(
          "button",
          {
            type: "button",
            class: "icon narrow",
            title: t("only", { condition }),
            "aria-label": t("onlyWith", { condition }),
            onclick: () => onWhere(condition),
          },
          icon("filter"),
        ),
    ),
  ];
  const known = [];
  if (hit.probability != null) known.push(row(t("probability"), percent(hit.probability, 1)));
  if (hit.confidence != null)
    known.push(row(t("confidence"), percent(hit.confidence, 1)));
  if (hit.score != null) known.push(row(t("scoreFact"), decimal(hit.score, 4)));
  if (hit.rank_before != null) known.push(row(t("rankBeforeFact"), count(hit.rank_before)));
  if (hit.identity != null) known.push(row(t("identity"), hit.identity, conditionFor("identity", hit.identity)));
  if (hit.group != null)
    known.push(row(t("groupFact"), t("pictures", { n: hit.group })));
  if (hit.taken) known.push(row(t("taken"), clock(hit.taken)));
  for (const [name, value] of Object.entries(hit.metadata))
    known.push(row(name, spelled(value), conditionFor(name, value)));
  for (const path of [hit.path ?? hit.name, ...(hit.copies || [])])
    known.push(row(t("file"), path, hit.path && beside(path)));
  return known.flat();
}

function actions(hit) {
  const open = h("a", { class: "button", target: "_blank", rel: "noopener" }, t("fullSize"));
  pictureUrl("images", hit.id).then(
    (url) => (open.href = url),
    () => open.remove(),
  );
  return [
    h(
      "button",
      { type: "button", class: "go", onclick: () => doing.onSimilar(hit.id) },
      icon("similar"),
      t("moreLikeThis"),
    ),
    h(
      "button",
      { type: "button", id: "part-toggle", "aria-pressed": "false", onclick: (event) => togglePart(event.currentTarget) },
      t("part"),
    ),
    open,
    ...deletion(hit),
    h("span", { id: "part" }),
  ];
}
