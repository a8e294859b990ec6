// From what a person filled in to what the server is asked, and to the command that does the same. Pure.
import { read } from "../text.js";

/** Lines of `name=value`; a value that reads as JSON is that value. */
export function pairs(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const at = line.indexOf("=");
    if (at < 1) continue;
    const value = line.slice(at + 1).trim();
    found[line.slice(0, at).trim()] = read(value);
  }
  return found;
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const names = (text) => text.split(/[\s,]+/).filter(Boolean);

/** Only what was filled in. */
function kept(values) {
  const blank = (value) => value === "" || value === null || value === undefined || (typeof value === "object" && !Object.keys(value).length);
  return Object.fromEntries(Object.entries(values).filter(([, value]) => !blank(value)));
}

const number = (text) => (text === "" ? undefined : Number(text));

export function request(form, params = null) {
  const shared = kept({ planner: form.kind === "goal" ? form.planner : "", context: form.context });
  if (form.review) shared.review = true;
  if (form.kind === "goal") {
    const goal = kept({ text: form.text.trim(), want: names(form.want), have: pairs(form.have), acceptance: lines(form.acceptance), budget: number(form.budget), deadline: form.deadline.trim(), mode: form.mode });
    return { goal, ...shared };
  }
  const more = { ...kept({ params: given(params ?? [], form.values), budget: number(form.budget) }), ...shared };
  return form.kind === "plan" ? { plan: read(form.plan), ...more } : { library: form.library.trim(), ...more };
}

function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

export function command(form, params = null) {
  const words = ["leadhand", "run"];
  if (form.kind === "goal") words.push(quoted(form.text.trim() || "GOAL"));
  else words.push(form.kind === "plan" ? "plan.yaml" : quoted(form.library || "NAME"));
  const flag = (name, values) => values.forEach((value) => words.push(name, quoted(value)));
  if (form.kind === "goal") (flag("--have", lines(form.have)), flag("--want", names(form.want)), form.planner && flag("--planner", [form.planner]));
  else flag("--set", (params ?? []).filter((each) => form.values[each.name]).map((each) => `${each.name}=${each.choices ? typed(each, form.values[each.name]) : form.values[each.name]}`));
  if (form.budget) flag("--budget", [String(form.budget)]);
  if (form.context) flag("--context", [form.context]);
  if (form.review) words.push("--review");
  return words.join(" ");
}

/** What a person typed for a parameter of a plan, by its type; undefined where nothing was typed. */
function typed(param, text = "") {
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
