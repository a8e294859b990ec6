// Texts and figures as people read them. Pure: no document, no clock of its own.

// What cannot be seen or changes the direction of reading: an approval is of what a person sees.
const HIDDEN =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\u2028\u2029\u034f\u115f\u1160\u2800\u3164\uffa0\ufe00-\ufe0f]|[^\S\n\t ]/gu;

/**
 * A text in pieces: what can be seen as it is, what cannot as an escape.
 * @param {unknown} value
 * @returns {{text: string, hidden: boolean}[]}
 */
export function pieces(value) {
  const text = typeof value === "string" ? value : value == null ? "" : String(value);
  const found = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match[0] === "\n" || match[0] === "\t") continue;
    if (match.index > from) found.push({ text: text.slice(from, match.index), hidden: false });
    found.push({ text: escaped(match[0]), hidden: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from), hidden: false });
  return found;
}

function escaped(char) {
  return `\\u{${char.codePointAt(0).toString(16).padStart(4, "0")}}`;
}

/** The same in one text, for titles and labels. */
export function visible(value) {
  return pieces(value).map((piece) => piece.text).join("");
}

export function short(value, length = 80) {
  const text = visible(value).replace(/\s+/g, " ").trim();
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

/** Seconds as people say them. */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds <= 0) return "0s";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10}s`;
  const whole = Math.round(seconds);
  const [days, hours] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24];
  const [minutes, rest] = [Math.floor(whole / 60) % 60, whole % 60];
  if (days) return hours ? `${days}d ${hours}h` : `${days}d`;
  if (hours) return minutes ? `${hours}h ${minutes}m` : `${hours}h`;
  if (minutes) return rest ? `${minutes}m ${rest}s` : `${minutes}m`;
  return `${rest}s`;
}

export function money(dollars) {
  if (dollars == null || !Number.isFinite(dollars)) return "–";
  if (dollars === 0) return "$0";
  if (Math.abs(dollars) < 0.01) return `$${dollars.toPrecision(2)}`;
  return `$${dollars.toFixed(2)}`;
}

/** What something cost: money in dollars, and the units that workers count in, which are no money. */
export function costs(cost, paid = 0) {
  if (cost == null || !Number.isFinite(cost)) return "–";
  const units = Math.round((cost - (paid ?? 0)) * 1e6) / 1e6;
  const parts = [paid ? money(paid) : "", units > 0 ? `${Math.round(units * 100) / 100 || units} units` : ""];
  return parts.filter(Boolean).join(" + ") || "0";
}

export function count(number, word, many = `${word}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? word : many}`;
}

export function percent(share) {
  if (share == null || !Number.isFinite(share)) return "–";
  return `${Math.round(share * 1000) / 10}%`;
}

/** Milliseconds since 1970 of an ISO time; NaN when there is none. */
export function millis(at) {
  if (at == null || at === "") return NaN;
  return typeof at === "number" ? at / 1000 : Date.parse(at);
}

const SKEW_S = 2; // clocks of browser and server differ a little

/** When something was, or will be, seen from now. */
export function ago(at, now) {
  const seconds = (now - millis(at)) / 1000;
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < -SKEW_S) return ahead(-seconds, at);
  if (seconds < 5) return "just now";
  if (seconds < 86400 * 14) return `${duration(coarse(seconds))} ago`;
  return day(at);
}

function ahead(seconds, at) {
  if (seconds >= 86400 * 14) return `on ${day(at)}`;
  return `in ${duration(seconds < 60 ? Math.ceil(seconds) : Math.ceil(seconds / 60) * 60)}`;
}

/** The exact instant, ISO 8601 in UTC. */
export function iso(at) {
  const date = new Date(millis(at));
  return Number.isNaN(+date) ? "" : date.toISOString();
}

function coarse(seconds) {
  if (seconds < 60) return Math.round(seconds);
  if (seconds < 3600) return Math.floor(seconds / 60) * 60;
  if (seconds < 86400) return Math.floor(seconds / 3600) * 3600;
  return Math.floor(seconds / 86400) * 86400;
}

export function day(at) {
  const date = new Date(millis(at));
  return Number.isNaN(+date) ? "–" : date.toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

/** A local time of day, to the millisecond: ledgers are read line by line. */
export function clock(at, digits = 3) {
  const date = new Date(millis(at));
  if (Number.isNaN(+date)) return "–";
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return digits ? `${time}.${String(date.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : time;
}

export function full(at) {
  const date = new Date(millis(at));
  return Number.isNaN(+date) ? "–" : date.toLocaleString("en", { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });
}

/** Whether each of some words stands in a text; no words are in every text. */
export function hasWords(text, words) {
  const low = String(text).toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => low.includes(word));
}

/** Counted cost, and beside it that of agents at work, which is counted when they have ended. */
export function spent(cost, running) {
  return [(cost || !running) && money(cost ?? 0), running && `${money(running)} so far`].filter(Boolean).join(" + ");
}

const TRIES = new Set(["retry", "reroute", "park"]);

/** The attempt that follows a failed one, and its worker; empty where none does. */
export function following({ attempt, worker, recovery }) {
  if (!TRIES.has(recovery?.strategy)) return "";
  return `attempt ${attempt + 1}${recovery.worker && recovery.worker !== worker ? ` by ${recovery.worker}` : ""}`;
}

/** `snake_case` words as people write them. */
export function words(text) {
  return String(text ?? "").replaceAll("_", " ");
}

/** The same at the beginning of a line or on a button. */
export const label = (text) => capital(words(text));
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const ANSWERS = {
  done: "Mark done", cannot: "Can't do it", retry: "Retry step", replan: "Replan", skip: "Skip step", abort: "Abort run", rollback: "Abort and roll back",
  give: "Provide data", go_on: "Continue planning", hand_over: "Use the goal planner", stop: "Stop planning", "give up": "Give up", release: "Release steps",
  approve: "Approve", reject: "Reject", request_changes: "Request changes", send_back: "Send back", drop: "Drop task",
};

/** An answer as a button says it; one that a planner made up, as it is. */
export function answerLabel(choice) {
  return ANSWERS[choice] ?? label(choice);
}

/** A recovery strategy as people read it. */
export function strategy(name) {
  return name === "ask" ? "ask a person" : words(name);
}

const AUTHORS = { document: "given plan", goal: "goal planner", epic: "epic planner" };

/** The author of a revision; those that are no persons by what they are. */
export function authorName(name) {
  return AUTHORS[name] ?? name;
}

/** Where a revision came from, to stand after it. */
export function origin(author, planner) {
  if (!author) return "";
  return author === "document" ? "from a plan document" : AUTHORS[author] ? `by the ${AUTHORS[author]}` : `by ${author === planner ? "planner " : ""}${author}`;
}

/** Any JSON value as indented text; a text stays itself. */
export function pretty(value) {
  if (typeof value === "string") return value;
  return JSON.stringify(value, null, 2) ?? "";
}

/** What a person wrote: data when it reads as JSON, otherwise the text. */
export function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** A text in two: its first line, which says what it is, and the lines after it as they were printed. */
export function headed(value) {
  const text = String(value ?? "").replace(/\s+$/, "");
  const cut = text.indexOf("\n");
  return cut < 0 ? { head: text, body: "" } : { head: text.slice(0, cut).trimEnd(), body: text.slice(cut + 1).replace(/^\n+/, "") };
}

/** Whether a text stands on the screen already, as a part of another. */
export function repeated(text, shown) {
  const wanted = String(text ?? "").trim();
  return wanted !== "" && shown.some((each) => String(each ?? "").includes(wanted));
}

/** What a sentence adds to what stands on the screen already: without the text that is repeated in it. */
export function beyond(text, known) {
  let rest = String(text ?? "");
  for (const said of known) if (said && String(said).trim()) rest = rest.replace(String(said), "…");
  return /[\p{L}\p{N}]/u.test(rest) ? rest.replace(/^…[;:,.]?\s*/, "").trim() : "";
}

const MATCHES_MAX = 2000;

/** Where a text holds another, whatever the case; `more` on the list: there are more than it holds. */
export function matches(text, query) {
  const [where, what] = [text.toLowerCase(), query.toLowerCase()];
  const found = [];
  // A letter whose small form is longer would shift every place after it: then the case counts.
  const [inside, wanted] = where.length === text.length && what.length === query.length ? [where, what] : [text, query];
  for (let at = wanted ? inside.indexOf(wanted) : -1; at >= 0; at = inside.indexOf(wanted, at + wanted.length)) {
    if (found.length === MATCHES_MAX) return Object.assign(found, { more: true });
    found.push(at);
  }
  return found;
}

/** Bytes as people say them. */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} KB` : `${Math.round(bytes / 1e5) / 10} MB`;
}

/** The first part of a hash, in groups that can be read aloud. */
export function hashed(hash, groups = 4) {
  const text = String(hash ?? "").replace(/^sha256[:-]/, "");
  return text.slice(0, groups * 4).match(/.{1,4}/g)?.join(" ") ?? "";
}

export function goalText(goal) {
  if (goal && typeof goal === "object") return goal.text || (goal.want ? `Get ${[].concat(goal.want).join(", ")}` : "");
  return goal ?? "";
}

/** Changes gathered by the step they are about, in the order they came. */
export function byStep(changes) {
  const groups = new Map();
  for (const change of changes) {
    const [, step, rest] = change.path.match(/^steps\.([^.[]+)\.?(.*)$/) ?? [null, "", change.path];
    if (!groups.has(step)) groups.set(step, []);
    groups.get(step).push({ ...change, rest });
  }
  return [...groups];
}
