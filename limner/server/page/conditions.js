// Conditions as the server reads them: `camera=3|4`, `height>=170`; see limner/conditions.py.

const LONGEST = 2000; // characters that the server reads

/** `name=value|value`, quoted where a value would be read as something else. */
export const written = (name, values) => `${name}=${values.map(quoted).join("|")}`;

/** What pictures of the same folder meet, and those of the folders in it. */
export const beside = (path) => `path~${quoted(path.replace(/[^\\/]*$/, "*"))}`;

/** Whether the server would read it as a condition. */
export const isCondition = (text) => /^[^=!<>~]+(!=|[<>]=?|=|~)/.test(text) && text.length <= LONGEST;

/** Whether a condition can name this field at all. */
export const nameable = (name) => name !== "" && name === name.trim() && !/[=!<>~]/.test(name);

/** The field and values of a condition that `written` could have made from these fields, else null. */
export function understood(condition, fields) {
  const field = fields.find(({ name }) => condition.startsWith(`${name}=`));
  if (!field) return null;
  const parts = condition.slice(field.name.length + 1).match(/(?:"(?:[^"\\]|\\.)*"|[^|"]|")+/g) || [];
  const values = parts.map((part) => unquoted(part.trim()));
  return values.length && values.every((value) => field.values.includes(value)) ? { field, values } : null;
}

function quoted(value) {
  return value === "" || value !== value.trim() || /[|"]/.test(value) ? JSON.stringify(value) : value;
}

function unquoted(text) {
  if (text.length < 2 || text[0] !== '"' || text.at(-1) !== '"') return text;
  try {
    return String(JSON.parse(text));
  } catch {
    return text.slice(1, -1);
  }
}
