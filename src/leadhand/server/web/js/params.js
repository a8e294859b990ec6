// Parameters as fields: from a JSON Schema, or from the `params` of a plan. Pure.

const word = (schema) => (schema.enum ? schema.enum.map((each) => JSON.stringify(each)).join(" or ") : [schema.type ?? "any"].flat().join(" or "));

/** One line for each property of a JSON Schema of an object. */
export function fields(schema) {
  const must = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, each]) => ({ name, type: word(each), required: must.has(name), fallback: each.default, description: each.description ?? "", choices: each.enum }));
}
