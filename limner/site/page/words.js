// Words of a text, as limner/data/words.py splits it: runs of letters and digits with their marks, folded.

const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;

/** Lower case, then composed characters: lower case may take characters apart. */
export const fold = (text) => text.toLowerCase().normalize("NFC");

/** @returns {string[]} */
export const words = (text) => fold(text).match(WORD) || [];
