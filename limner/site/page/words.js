// Words of a text, as limner/data/words.py splits it: runs of letters and digits with their marks, folded.

const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;

/** What nobody sees goes, wide letters and digits become plain: `as_it_looks` of limner/data/words.py. */
export const asItLooks = (text) =>
  text
    .replace(/[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]/g, (wide) => String.fromCharCode(wide.charCodeAt(0) - 0xfee0))
    .replace(/[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]/g, "")
    .replace(/(?<![^\x00-\u052f\u1e00-\u1fff])[\u200b-\u200d]+|[\u200b-\u200d]+(?![^\x00-\u052f\u1e00-\u1fff])/g, "");

/** Lower case, then composed characters: lower case may take characters apart. */
export const fold = (text) => asItLooks(text).toLowerCase().normalize("NFC");

/** @returns {string[]} */
export const words = (text) => fold(text).match(WORD) || [];
