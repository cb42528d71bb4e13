// The bar above the results: how many are marked, the search with the marks, the shortlist, exports.

import { exportFile, pictureUrl, showPicture } from "./api.js";
import { byId, h, icon } from "./elements.js";
import { alternativeText } from "./facts.js";
import { count, currentLanguage, t } from "./language.js";
import { allJudged, canUndo, judged, MARKS, searchKey, sentMarks } from "./marks.js";

const MOST_PICTURES = 1000; // of one search in an export
let doing = {};
let now = null; // {state, answer}
let listed = ""; // the language and the search that the shortlist is drawn of

const FORMS = ["csv", "json", "sheet", "zip", "qrels", "queries"];

/** `onApply()`, `onPlain()`, `onUndo()`, `onClear()`, `onMark(hit, mark)`, `onNote(hit, note)`, `onProblem(problem)`. */
export function startBench(handlers) {
  doing = handlers;
  byId("judging").addEventListener("click", () => {
    keepJudging(!keptJudging());
    showJudging(false);
  });
  byId("apply").addEventListener("click", doing.onApply);
  byId("plain").addEventListener("click", doing.onPlain);
  byId("undo").addEventListener("click", doing.onUndo);
  byId("clear-marks").addEventListener("click", doing.onClear);
  byId("copy").addEventListener("click", copyLink);
  byId("shortlist-toggle").addEventListener("click", () => {
    const shown = byId("shortlist").hidden;
    byId("shortlist").hidden = !shown;
    byId("shortlist-toggle").setAttribute("aria-expanded", shown);
    byId("shortlist").replaceChildren();
    showBench(now.state, now.answer);
  });
  byId("forms").replaceChildren(...formButtons(FORMS, (form) => exportNow(form)));
  closing(byId("export"));
}

/** Buttons of an export's forms, whose names are keys of the catalogue. */
export const formButtons = (forms, onForm) =>
  forms.map((form) =>
    h("li", {}, h("button", { type: "button", "data-form": form, "data-t": form, onclick: () => onForm(form) })),
  );

/** A menu opens to the side that has room for it, and closes where one would expect it. */
export function closing(menu) {
  menu.addEventListener("toggle", () => {
    const { left, right } = menu.querySelector(".sheet").getBoundingClientRect();
    if (menu.open && (left < 0 || right > document.documentElement.clientWidth)) menu.classList.add("to-end");
    else if (!menu.open) menu.classList.remove("to-end");
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => menu.contains(event.target) || (menu.open = false));
}

const JUDGING = "limner.judging";

function keptJudging() {
  try {
    return localStorage.getItem(JUDGING) === "1";
  } catch {
    return document.body.hasAttribute("data-judging"); // storage may be forbidden
  }
}

function keepJudging(on) {
  document.body.toggleAttribute("data-judging", on);
  try {
    localStorage.setItem(JUDGING, on ? "1" : "0");
  } catch {
    // Then it lasts until the page is loaded again.
  }
}

/** Buttons of marks stand below the pictures where somebody judges: by choice, or as soon as one is marked. */
function showJudging(marked) {
  const on = marked || keptJudging();
  document.body.toggleAttribute("data-judging", on);
  byId("judging").setAttribute("aria-pressed", on);
  byId("judging").hidden = marked;
}

/** Brings the bar in line with a search, its answer and its marks. */
export function showBench(state, answer) {
  now = { state, answer };
  const pictures = Object.values(judged(state));
  const number = (mark) => pictures.filter((one) => one.mark === mark).length;
  const moving = Object.keys(sentMarks(state)).length;
  showJudging(pictures.length > 0);
  byId("bench").hidden = !answer || (answer.hits.length === 0 && pictures.length === 0);
  byId("tally").replaceChildren(
    ...MARKS.map(({ mark, icon: name, label }) =>
      h(
        "span",
        { class: `tally ${mark}`, title: t(label) },
        icon(name),
        h("strong", {}, count(number(mark))),
        h("span", { class: "tally-name" }, t(label)),
      ),
    ),
  );
  byId("apply").hidden = moving === 0;
  byId("apply").querySelector("span").textContent = t(state.marked ? "searchAgainWith" : "searchWith", {
    n: moving,
  });
  byId("plain").hidden = !state.marked;
  byId("undo").disabled = !canUndo(state);
  byId("clear-marks").hidden = pictures.length === 0;
  byId("shortlist-toggle").querySelector("span").textContent = pictures.length
    ? t("shortlistOf", { n: pictures.length })
    : t("shortlist");
  // While somebody works in it, it stays.
  const empty = pictures.length === 0 && !byId("shortlist").contains(document.activeElement);
  byId("shortlist-toggle").disabled = empty;
  if (empty) {
    byId("shortlist").hidden = true;
    byId("shortlist-toggle").setAttribute("aria-expanded", "false");
  }
  byId("export-of").textContent = pictures.length
    ? t("exportJudged", { n: pictures.length })
    : t("exportShown");
  showShortlist();
}

export function hideBench() {
  now = null;
  byId("bench").hidden = true;
  byId("shortlist").replaceChildren();
}

export const say = (text) => (byId("told").textContent = text);

/** The three buttons of a picture. `onMark(mark)`. */
export function markButtons(mark, picture, onMark, { tabindex = null } = {}) {
  return MARKS.map((one) =>
    h(
      "button",
      {
        type: "button",
        class: `icon mark ${one.mark}`,
        "data-mark": one.mark,
        "aria-pressed": `${mark === one.mark}`,
        "aria-label": t("markOf", { mark: t(one.label), picture }),
        title: t(one.title),
        tabindex,
        onclick: onMark && (() => onMark(one.mark)),
      },
      icon(one.icon),
    ),
  );
}

/** Shows which of such buttons is pressed. */
export function pressMark(buttons, mark) {
  for (const one of buttons) one.setAttribute("aria-pressed", `${one.dataset.mark === mark}`);
}

/** It is sorted when it opens; then rows stay where they are, and what has focus is not drawn again. */
function showShortlist() {
  const list = byId("shortlist");
  if (list.hidden || !now) return;
  const marks = judged(now.state);
  const subject = `${currentLanguage()} ${searchKey(now.state)}`;
  if (subject !== listed) list.replaceChildren();
  listed = subject;
  for (const row of [...list.children]) {
    const one = marks[row.dataset.id];
    const note = row.querySelector("textarea");
    if (!one && !row.contains(document.activeElement)) row.remove();
    pressMark(row.querySelectorAll(".mark"), one?.mark);
    if (note !== document.activeElement) note.value = one?.note ?? "";
  }
  const there = new Set([...list.children].map((row) => row.dataset.id));
  const order = { right: 0, maybe: 1, null: 2, wrong: 3 };
  const rows = Object.entries(marks)
    .filter(([id]) => !there.has(id))
    .sort(([, one], [, other]) => order[one.mark] - order[other.mark]);
  // Facts are those of the answer: a mark that stays in the browser holds none.
  const known = new Map((now.answer?.hits || []).map((hit) => [hit.id, hit]));
  list.append(...rows.map(([id, one]) => shortlisted({ ...known.get(id), ...one, id })));
}

function shortlisted(hit) {
  const image = h("img", { alt: alternativeText(hit), draggable: "false" });
  showPicture(image, "thumbnails", hit.id);
  const link = h("a", { target: "_blank", rel: "noopener", title: t("fullSize") }, image);
  pictureUrl("images", hit.id).then(
    (url) => (link.href = url),
    () => {},
  );
  const note = h("textarea", {
    rows: "2",
    maxlength: "1000",
    dir: "auto",
    placeholder: t("note"),
    "aria-label": t("noteAbout", { picture: alternativeText(hit) }),
    oninput: (event) => doing.onNote(hit, event.target.value.trim()),
  });
  note.value = hit.note;
  return h(
    "li",
    { "data-id": hit.id },
    link,
    h(
      "div",
      {},
      h("p", { class: "known", dir: "auto" }, hit.name),
      h("div", { class: "judge" }, markButtons(hit.mark, alternativeText(hit), (mark) => doing.onMark(hit, mark))),
      note,
    ),
  );
}

async function copyLink() {
  const shared = new URL(location.href);
  const values = new URLSearchParams(shared.hash.slice(1));
  values.delete("marked"); // the marks are in this browser only
  shared.hash = values;
  try {
    await navigator.clipboard.writeText(shared.href);
    say(t("linkCopied"));
  } catch {
    // Over plain HTTP, from another machine, browsers give no clipboard.
    window.prompt(t("linkTo"), shared.href);
  }
}

async function exportNow(form) {
  const { state, answer } = now;
  const all = byId("export-all").checked;
  const mine = judged(state);
  const shown = answer.hits.map(({ id, rank, score, probability }) => [id, { rank, score, probability }]);
  const own = { ...state, picture: Boolean(state.picture), pictures: mine };
  if (!Object.keys(mine).length) own.pictures = Object.fromEntries(shown);
  const searches = all && allJudged().length ? allJudged() : [own];
  byId("export").open = false;
  say(t("exporting"));
  try {
    const size = await download(form, searches);
    say(t("exported", { n: size }));
  } catch (problem) {
    say(t("notExported", { why: problem.detail || problem.message }));
    doing.onProblem(problem);
  }
}

/** Asks for a file and hands it to the browser; resolves to the number of pictures. */
export async function download(form, searches) {
  const told = searches.map(({ text, like, picture, where, pictures, error }) => ({
    text: text || null,
    like: picture ? null : like || null,
    picture: Boolean(picture),
    where: where || [],
    error: error?.slice(0, 2000) ?? null,
    // Marks are kept in the order in which they were made.
    pictures: Object.entries(pictures)
      .sort(([, one], [, other]) => (one.rank ?? Infinity) - (other.rank ?? Infinity) || 0)
      .slice(0, MOST_PICTURES)
      .map(([id, one]) => ({
        id,
        mark: one.mark ?? null,
        note: one.note ?? "",
        rank: one.rank ?? null,
        score: one.score ?? null,
        probability: one.probability ?? null,
      })),
  }));
  const { blob, name } = await exportFile({ form, searches: told });
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return told.reduce((sum, search) => sum + search.pictures.length, 0);
}
