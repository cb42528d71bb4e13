// Where a reranker looked: words light up their regions in the picture, regions and reading steps their words.

import { h } from "./elements.js";
import { count, percent, t } from "./language.js";

const DARKEST = 0.74; // of the cover over what a word does not look at
const FINE = 24; // pixels of the cover a region, each way
const FEWEST = 0.04; // share of attention below which nothing is said of it

/**
 * `attention` as the server has it: words, of_regions [words][rows][columns], of_words [readers][words], reader.
 * The regions are of the whole picture, or of `crop` (left, top, right, bottom as shares of it). Draws into `overlay`.
 */
export function attentionView(attention, overlay) {
  const { words, of_regions: maps, of_words: readings, reader } = attention;
  const rows = maps?.[0]?.length || 0;
  const columns = maps?.[0]?.[0]?.length || 0;
  const cellwise = reader === "region" && rows * columns > 0;
  const cover = maps ? (cellwise ? cellCover(rows, columns) : smoothCover(rows, columns)) : null;
  let pinned = null;

  const caption = h("p", { class: "caption", role: "status" });
  const chips = words.map((word, index) =>
    control(h("button", { type: "button", class: "word", dir: "auto" }, word), { word: index }),
  );
  const steps =
    readings && !cellwise
      ? readings.map((_, index) =>
          control(h("button", { type: "button", class: "step" }, count(index + 1)), { reader: index }),
        )
      : [];
  if (cellwise && readings) cover.cells.forEach((cell, index) => control(cell, { reader: index }));
  if (cellwise) cover.element.inert = !readings;
  if (cover) place(overlay, cover, attention.crop);
  show(null);

  /** Hover and focus preview; a click keeps it, and a second one lets it go. */
  function control(element, subject) {
    element.setAttribute("aria-pressed", "false");
    element.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show(subject));
    element.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(pinned));
    element.addEventListener("focus", () => element.matches(":focus-visible") && show(subject));
    element.addEventListener("blur", () => show(pinned));
    element.addEventListener("click", () => {
      pinned = same(pinned, subject) ? null : subject;
      show(pinned);
    });
    return element;
  }

  function show(subject) {
    const ofWords = subject?.reader !== undefined ? readings?.[subject.reader] : null;
    chips.forEach((chip, index) => {
      chip.classList.toggle("on", subject?.word === index);
      chip.style.setProperty("--share", ofWords ? ofWords[index] / (Math.max(...ofWords) || 1) : 0);
      chip.setAttribute("aria-pressed", same(pinned, { word: index }));
    });
    const readers = cellwise && readings ? cover.cells : steps;
    readers.forEach((element, index) => {
      element.classList.toggle("on", subject?.reader === index);
      element.setAttribute("aria-pressed", same(pinned, { reader: index }));
    });
    cover?.draw(subject === null ? null : mapOf(subject));
    caption.textContent = said(subject);
  }

  function mapOf({ word, reader: index }) {
    if (word !== undefined) return maps[word].flat();
    if (cellwise) return Array.from({ length: rows * columns }, (_, cell) => Number(cell === index));
    const sum = new Array(rows * columns).fill(0); // what a step sees: its words' regions, by their weights
    readings[index].forEach((weight, at) =>
      maps[at].flat().forEach((share, cell) => (sum[cell] += weight * share)),
    );
    return sum;
  }

  function said(subject) {
    if (subject === null) {
      if (!maps) return t("pointAtStep");
      return t(cellwise && readings ? "pointAtBoth" : "pointAtWord");
    }
    if (subject.word !== undefined) {
      if (!maps) return "";
      const best = strongest(maps[subject.word].flat(), cellwise ? 3 : 1);
      if (!best.length) return t("looksNowhere", { word: words[subject.word] });
      const places = best.map(
        ([cell, share]) => `${placeName(cell, rows, columns)}${cellwise ? ` ${percent(share)}` : ""}`,
      );
      return t(cellwise ? "looksAt" : "looksMostAt", { word: words[subject.word], places: places.join(", ") });
    }
    const best = strongest(readings[subject.reader], 4).map(([index, share]) =>
      t("quoted", { word: words[index], share: percent(share) }),
    );
    const read = best.join(", ");
    if (!cellwise) return t(read ? "stepReads" : "stepReadsNone", { step: subject.reader + 1, words: read });
    const place = placeName(subject.reader, rows, columns);
    return t(read ? "regionReads" : "regionReadsNone", { place, words: read });
  }

  return [
    h("h3", {}, t(maps ? "whereLooks" : "whatReads")),
    h("div", { class: "words", role: "group", "aria-label": t("wordsOf") }, chips),
    steps.length
      ? h(
          "div",
          { class: "steps", role: "group", "aria-label": t("stepsOf") },
          h("span", {}, t("steps")),
          steps,
        )
      : null,
    caption,
  ];
}

const same = (one, other) => one !== null && one.word === other.word && one.reader === other.reader;

const strongest = (shares, most) =>
  shares
    .map((share, index) => [index, share])
    .filter(([, share]) => share >= FEWEST)
    .sort((a, b) => b[1] - a[1])
    .slice(0, most);

function placeName(cell, rows, columns) {
  const down = (Math.floor(cell / columns) + 0.5) / rows;
  const across = ((cell % columns) + 0.5) / columns;
  const heights = [[0.2, "placeTop"], [0.4, "placeUpper"], [0.6, "placeMiddle"], [0.8, "placeLower"]];
  const height = rows === 1 ? null : (heights.find(([end]) => down <= end)?.[1] ?? "placeBottom");
  const side = columns === 1 ? null : across < 1 / 3 ? "placeLeft" : across <= 2 / 3 ? "placeCentre" : "placeRight";
  if (height && side) return t("place", { height: t(height), side: t(side) });
  return t(height || side || "placeWhole");
}

function place(overlay, cover, crop = [0, 0, 1, 1]) {
  const [left, top, right, bottom] = crop || [0, 0, 1, 1];
  Object.assign(cover.element.style, {
    left: `${100 * left}%`,
    top: `${100 * top}%`,
    width: `${100 * (right - left)}%`,
    height: `${100 * (bottom - top)}%`,
  });
  overlay.replaceChildren(cover.element);
}

/** Many regions: a dark cover that lets through where the attention is, without edges. */
function smoothCover(rows, columns) {
  const [width, height] = [columns * FINE, rows * FINE];
  const element = h("canvas", { width, height, "aria-hidden": "true" });
  const context = element.getContext("2d");
  return {
    element,
    draw(shares) {
      element.classList.toggle("shown", shares !== null);
      if (shares === null) return;
      const most = Math.max(...shares) || 1;
      const pixels = context.createImageData(width, height);
      for (let y = 0; y < height; y += 1) {
        for (let x = 0; x < width; x += 1) {
          const light = between(shares, rows, columns, (y + 0.5) / FINE - 0.5, (x + 0.5) / FINE - 0.5) / most;
          pixels.data.set([6, 10, 18, 255 * DARKEST * (1 - light)], 4 * (y * width + x));
        }
      }
      context.putImageData(pixels, 0, 0);
    },
  };
}

/** The share at a place between the centres of cells: browsers enlarge so small a canvas in visible blocks. */
function between(shares, rows, columns, y, x) {
  const [top, left] = [Math.floor(y), Math.floor(x)];
  const [down, right] = [soft(y - top), soft(x - left)];
  const at = (row, column) =>
    shares[Math.min(rows - 1, Math.max(0, row)) * columns + Math.min(columns - 1, Math.max(0, column))];
  const upper = at(top, left) * (1 - right) + at(top, left + 1) * right;
  const lower = at(top + 1, left) * (1 - right) + at(top + 1, left + 1) * right;
  return upper * (1 - down) + lower * down;
}

const soft = (part) => part * part * (3 - 2 * part);

/** Few regions, of which each reads words itself: a button a region. */
function cellCover(rows, columns) {
  const cells = Array.from({ length: rows * columns }, (_, cell) =>
    h(
      "button",
      {
        type: "button",
        class: "cell",
        tabindex: cell ? "-1" : "0",
        "aria-label": t("region", { place: placeName(cell, rows, columns) }),
      },
      h("span"),
    ),
  );
  const element = h("div", { class: "cells", role: "group", "aria-label": t("regionsOf") }, cells);
  element.style.gridTemplate = `repeat(${rows}, 1fr) / repeat(${columns}, 1fr)`;
  element.addEventListener("keydown", (event) => {
    const at = cells.indexOf(event.target);
    const goal = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at + columns }[
      event.key
    ];
    if (goal === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // outside of the regions these keys go to the next result
    if (!cells[goal]) return;
    cells[at].tabIndex = -1;
    cells[goal].tabIndex = 0;
    cells[goal].focus();
  });
  return {
    element,
    cells,
    draw(shares) {
      element.classList.toggle("shown", shares !== null);
      const most = Math.max(...(shares || [])) || 1;
      cells.forEach((cell, index) => {
        const share = shares ? shares[index] : 0;
        cell.style.setProperty("--light", shares ? (share / most).toFixed(3) : 1);
        cell.classList.toggle("lit", share >= FEWEST);
        cell.firstChild.textContent = share >= FEWEST && share < 1 ? percent(share) : "";
      });
    },
  };
}
