// Token ids of a text, as the model's tokenizer gives them: 0 is padding.

import { asItLooks, words } from "./words.js";

/** A function from text to `{ids, known}`; `known` is false if the model knows no word of it. */
export async function tokenizer(described, content, library) {
  const read = described.kind === "words" ? byWords(described, content) : await byPieces(described, content, library);
  for (const [text, expected] of described.read)
    if (String(read(text).ids) !== String(expected)) throw new Error(`this browser reads ${JSON.stringify(text)} otherwise`);
  return read;
}

function byWords(described, entries) {
  const numbers = new Map(entries.map((word, place) => [word, place + 1]));
  return (text) => {
    const ids = words(text).flatMap((word) => numbers.get(word) ?? []);
    return { ids: ids.slice(0, described.words), known: ids.length > 0 };
  };
}

async function byPieces(described, content, library) {
  const { Tokenizer } = await import(library);
  const pieces = new Tokenizer(content, {});
  const { before, behind, unknown } = described;
  return (text) => {
    let clean = asItLooks(text).replace(/\p{Surrogate}/gu, "\ufffd");
    // JavaScript makes ς of a capital sigma at a word's end, the library that the model was trained with σ.
    if (described.lower_case) clean = clean.replaceAll("Σ", "σ");
    const own = [...pieces.encode(clean, { add_special_tokens: false }).ids].map(Number);
    const room = Math.max(0, described.words - before.length - behind.length);
    const ids = [...before, ...own.slice(0, room).map((id) => id + 1), ...behind];
    return { ids: ids.slice(0, described.words), known: own.some((id) => id !== unknown) };
  };
}
