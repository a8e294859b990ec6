// Parameters as fields: of a worker's action by its JSON Schema, of a plan as the server lists them. Pure.
import { read } from "./text.js";

const word = (schema) => (schema.enum ? schema.enum.map((each) => JSON.stringify(each)).join(" or ") : [schema.type ?? "any"].flat().join(" or "));

/** One line for each property of a JSON Schema of an object. */
export function fields(schema) {
  const must = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, each]) => ({ name, type: word(each), required: must.has(name), fallback: each.default, description: each.description ?? "" }));
}

/** What a person typed for a parameter of a plan, by its type; undefined where nothing was typed. */
export function typed(param, text = "") {
  if (text === "") return undefined;
  if (param.choices) return param.choices.find((each) => JSON.stringify(each) === text);
  if (param.type === "boolean") return text === "true";
  if (param.type === "integer" || param.type === "number") return Number(text);
  return param.type === "string" || param.type === "secret" ? text : read(text);
}

/** The values of all parameters that were filled in. */
export function given(params, texts) {
  return Object.fromEntries(params.map((each) => [each.name, typed(each, texts[each.name])]).filter(([, value]) => value !== undefined));
}
