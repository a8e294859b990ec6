// The server, as functions. Every failure is an ApiError that can be shown to a person.
import { signal } from "./lib.js";

const BASE = "/api/v1";

/** Set when the server says that nobody is signed in. */
export const signedOut = signal(false);

class ApiError extends Error {
  /** @param {number} status 0 when no answer came @param {object} problem RFC 9457 */
  constructor(status, problem) {
    super(problem.detail || problem.title || "the server did not answer");
    this.status = status;
    this.title = problem.title || "";
    this.findings = problem.findings ?? [];
    this.problem = problem;
  }
}

/** @returns {Promise<any>} the document; texts come as they are */
async function call(method, path, body, options = {}) {
  const headers = { Accept: "application/json, text/plain" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (options.key) headers["Idempotency-Key"] = options.key;
  let response;
  try {
    response = await fetch(BASE + path, {
      method, headers, cache: "no-cache", credentials: "same-origin", signal: options.signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { title: "No connection", detail: "The server does not answer. Is `leadhand serve` or `leadhand fleet start` running?" });
  }
  if (response.ok) return read(response);
  if (response.status === 401) signedOut.value = true;
  throw new ApiError(response.status, await problem(response));
}

async function read(response) {
  if (response.status === 204) return null;
  const type = response.headers.get("content-type") ?? "";
  return type.includes("json") ? response.json() : type.includes("zip") ? response.blob() : response.text();
}

async function problem(response) {
  try {
    return await response.json();
  } catch {
    return { title: `The server answered ${response.status}`, detail: response.statusText };
  }
}

/** A key of one intended act: sending it twice does it once. */
export function intent() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept.map(([key, value]) => [key, String(value)]))}` : "";
}

const at = encodeURIComponent;
const get = (path, signal) => call("GET", path, undefined, { signal });
/** A response that goes on: server-sent events, for `sse.js` to read. */
const stream = (path, signal, headers = {}) => fetch(BASE + path, { headers: { Accept: "text/event-stream", ...headers }, cache: "no-store", credentials: "same-origin", signal });
const post = (path, body = {}, key = intent()) => call("POST", path, body, { key });

export const api = {
  session: () => get("/session"),
  signIn: (token) => post("/session", { token }),
  signOut: () => call("DELETE", "/session"),
  overview: (range, signal) => get(`/overview${query({ range })}`, signal),
  runs: (filter = {}, signal) => get(`/runs${query(filter)}`, signal),
  run: (run, signal) => get(`/runs/${at(run)}`, signal),
  graph: (run, signal) => get(`/runs/${at(run)}/graph`, signal),
  rows: (run, after, signal) => get(`/runs/${at(run)}/rows${query({ after })}`, signal),
  step: (run, step, signal) => get(`/runs/${at(run)}/steps/${at(step)}`, signal),
  output: (run, step, attempt, signal) => get(`/runs/${at(run)}/steps/${at(step)}/output${query({ attempt })}`, signal),
  outputAddress: (run, step, attempt) => `${BASE}/runs/${at(run)}/steps/${at(step)}/output${query({ attempt })}`,
  inputAddress: (run, step, name) => `${BASE}/runs/${at(run)}/steps/${at(step)}/inputs/${at(name)}`,
  modelCalls: (run, filter, signal) => get(`/runs/${at(run)}/model-calls${query(filter)}`, signal),
  modelCall: (run, number, signal) => get(`/runs/${at(run)}/model-calls/${number}`, signal),
  live: (run, step, signal) => stream(`/runs/${at(run)}/steps/${at(step)}/live`, signal),
  events: (position, signal) => stream("/events", signal, position ? { "Last-Event-ID": position } : {}),
  revisions: (run, signal) => get(`/runs/${at(run)}/revisions`, signal),
  revision: (run, number, signal) => get(`/runs/${at(run)}/revisions/${number}`, signal),
  diff: (run, from, to, signal) => get(`/runs/${at(run)}/diff${query({ from, to })}`, signal),
  ledger: (run, kind, cursor, signal) => get(`/runs/${at(run)}/ledger${query({ kind, cursor, limit: 500 })}`, signal),
  entry: (run, seq, signal) => get(`/runs/${at(run)}/ledger/${seq}`, signal),
  rerun: (run, from_step) => post(`/runs/${at(run)}/rerun`, from_step ? { from_step } : {}),
  exportRun: (run) => post(`/runs/${at(run)}/export`),
  verify: (run) => post(`/runs/${at(run)}/verify`),
  control: (run, verb, reason) => post(`/runs/${at(run)}/${verb}`, { reason }),
  reassign: (run, step, worker, reason) => post(`/runs/${at(run)}/steps/${at(step)}/reassign`, { worker, reason }),
  stepControl: (run, step, verb, reason) => post(`/runs/${at(run)}/steps/${at(step)}/${verb}`, { reason }),
  review: (run, signal) => get(`/runs/${at(run)}/review`, signal),
  fields: (run, step, signal) => get(`/runs/${at(run)}/review/steps/${at(step)}`, signal),
  preview: (run, body) => post(`/runs/${at(run)}/review/preview`, body),
  decide: (run, verb, body) => post(`/runs/${at(run)}/review/${verb}`, body),
  compare: (run, other, signal) => get(`/runs/${at(run)}/compare/${at(other)}`, signal),
  usage: (asked, signal) => get(`/usage${query(asked)}`, signal),
  csv: (list, asked) => `${BASE}/${list}${query({ ...asked, format: "csv" })}`,
  start: (body, key) => post("/runs", body, key),
  draft: (body) => post("/plans/draft", body),
  inbox: (limit, signal) => get(`/inbox${query({ limit })}`, signal),
  answer: (run, question, body) => post(`/inbox/${at(run)}/${at(question)}/answer`, body),
  library: (signal) => get("/library", signal),
  plan: (name, signal) => get(`/library/${at(name)}`, signal),
  planDiff: (name, from, to, signal) => get(`/library/${at(name)}/diff${query({ from, to })}`, signal),
  lint: (plan) => post("/plans/lint", { plan }),
  savePlan: (name, plan) => call("PUT", `/library/${at(name)}`, { plan }),
  removePlan: (name) => call("DELETE", `/library/${at(name)}`),
  workers: (signal) => get("/workers", signal),
  workerUse: (signal) => get("/workers/use", signal),
  metrics: (signal) => get("/metrics", signal),
  people: (signal) => get("/people", signal),
  addPerson: (name, role) => post("/people", { name, role }),
  changeRole: (name, role) => call("PUT", `/people/${at(name)}`, { role }),
  removePerson: (name) => call("DELETE", `/people/${at(name)}`),
  settings: (signal) => get("/settings", signal),
  fleet: async (since, signal) => (await get(`/fleet${query({ since })}`, signal)).fleet,
  fleetTask: (run, task, signal) => get(`/fleet/${at(run)}/${at(task)}`, signal),
  fleetWords: (run, task, attempt, signal) => get(`/fleet/${at(run)}/${at(task)}/words${query({ attempt })}`, signal),
  fleetSubmit: (body) => post("/fleet/epics", body),
  fleetOrder: (verb, more) => post(`/fleet/${verb}`, more),
  fleetStop: (run, task, reason, final) => post(`/fleet/${at(run)}/${at(task)}/stop`, { reason, final }),
  fleetMessage: (run, task, text) => post(`/fleet/${at(run)}/${at(task)}/message`, { text }),
  stopAll: (reason) => post("/stop-all", { reason }),
  liftStop: () => call("DELETE", "/stop-all"),
};
