// One table for every state: its word, its tone (colour) and its shape. Colour never stands alone.

const CIRCLE = "M8 2.2a5.8 5.8 0 1 1 0 11.6a5.8 5.8 0 0 1 0-11.6z";

export const SHAPES = {
  hollow: CIRCLE,
  dashed: "M8 2.2a5.8 5.8 0 0 1 2.9.8M12.9 4.9a5.8 5.8 0 0 1 .9 2.5M13.6 9.6a5.8 5.8 0 0 1-1.4 2.6M9.9 13.5a5.8 5.8 0 0 1-2.9.2M4.3 12.5a5.8 5.8 0 0 1-1.7-2.3M2.3 7a5.8 5.8 0 0 1 1.2-2.7M5.6 2.7l.6-.2",
  check: `${CIRCLE}M5.2 8.2l2 2l3.6-4`,
  cross: "M5.6 2.2h4.8l3.4 3.4v4.8l-3.4 3.4H5.6L2.2 10.4V5.6zM6 6l4 4M10 6l-4 4",
  ring: "M8 2.2a5.8 5.8 0 1 0 5.8 5.8M8 5a3 3 0 1 0 3 3",
  loop: "M13.2 8a5.2 5.2 0 1 1-1.6-3.7M13.4 1.8v3h-3",
  person: "M8 7.4a2.4 2.4 0 1 0 0-4.8a2.4 2.4 0 0 0 0 4.8zM3.2 13.6c.4-2.8 2.3-4.2 4.8-4.2s4.4 1.4 4.8 4.2z",
  pause: `${CIRCLE}M6.4 5.8v4.4M9.6 5.8v4.4`,
  clock: `${CIRCLE}M8 4.8V8l2.2 1.6`,
  dash: `${CIRCLE}M5.4 8h5.2`,
  slash: `${CIRCLE}M4.2 11.8l7.6-7.6`,
  square: "M3.4 3.4h9.2v9.2H3.4z",
  broken: "M8 2.2l6 11.4H2zM8 6.4v3.4M8 11.6v.2",
};

/** @type {Record<string, {word: string, tone: string, shape: keyof typeof SHAPES}>} */
export const STATES = {
  // of a step
  pending: { word: "not started", tone: "quiet", shape: "hollow" },
  ready: { word: "ready", tone: "quiet", shape: "hollow" },
  running: { word: "running", tone: "live", shape: "ring" },
  starting: { word: "starting", tone: "live", shape: "ring" },
  probing: { word: "probing", tone: "live", shape: "ring" },
  retrying: { word: "retrying", tone: "warn", shape: "loop" },
  parked: { word: "parked", tone: "warn", shape: "clock" },
  waiting_for_person: { word: "waiting for input", tone: "ask", shape: "person" },
  waiting_for_approval: { word: "waiting for approval", tone: "ask", shape: "person" },
  held: { word: "held", tone: "ask", shape: "pause" },
  scheduled: { word: "scheduled", tone: "quiet", shape: "clock" },
  succeeded: { word: "succeeded", tone: "good", shape: "check" },
  failed: { word: "failed", tone: "bad", shape: "cross" },
  skipped: { word: "skipped", tone: "quiet", shape: "dash" },
  cancelled: { word: "cancelled", tone: "quiet", shape: "slash" },
  taken_over: { word: "taken over", tone: "quiet", shape: "check" },
  superseded: { word: "replaced", tone: "quiet", shape: "loop" },
  proposed: { word: "proposed", tone: "ask", shape: "dashed" },
  outlook: { word: "expected later", tone: "faint", shape: "dashed" },
  // of a run
  waiting: { word: "waiting", tone: "ask", shape: "person" },
  paused: { word: "paused", tone: "warn", shape: "pause" },
  stopping: { word: "stopping", tone: "warn", shape: "square" },
  rejected: { word: "rejected", tone: "bad", shape: "cross" },
  unreadable: { word: "unreadable", tone: "bad", shape: "broken" },
};

export function state(status) {
  return STATES[status] ?? { word: String(status ?? "unknown").replaceAll("_", " "), tone: "quiet", shape: "hollow" };
}

/** The same of a run; `awaiting` says what one that waits needs: an approval, input, or its caller. */
export function runState(status, awaiting) {
  if (status !== "waiting" || !awaiting) return state(status);
  return state(`waiting_for_${awaiting === "input" ? "person" : awaiting}`);
}

/** The same of a step: it waits for the steps before it, where a run waits for a person. */
export function stepState(status) {
  return status === "waiting" ? STATES.pending : state(status);
}

export const ENDED = new Set(["succeeded", "failed", "cancelled", "rejected"]);
export const SETTLED = new Set(["succeeded", "failed", "skipped", "cancelled", "superseded"]);
const IN_FLIGHT = new Set(["running", "probing"]);
export const RISKS = { low: "good", medium: "warn", high: "bad", critical: "bad" };

/** The order in which counts are told: what matters to a person first. */
export const COUNTED = [
  "failed", "waiting_for_approval", "waiting_for_person", "held", "proposed", "running", "retrying", "parked", "succeeded",
  "skipped", "cancelled", "superseded", "ready", "scheduled", "pending", "waiting", "outlook",
];

/** What a person sees for a node of the graph. */
export function shown(node) {
  if (node.outlook && node.status !== "proposed") return "outlook";
  if (node.status === "waiting_for_person" && node.error?.change) return "waiting_for_approval";
  return node.held && !SETTLED.has(node.status) && !IN_FLIGHT.has(node.status) ? "held" : node.status;
}

// `status:failed worker:fetch rides`: which steps are meant.

/** @returns {(node: object) => boolean | null} null when nothing is asked */
export function filter(text) {
  const terms = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) return null;
  const tests = terms.map(test);
  return (node) => tests.every((each) => each(node));
}

function test(term) {
  const [, field, wanted] = term.match(/^(status|worker|action|id):(.+)$/) ?? [];
  if (field === "status") {
    return (node) => shown(node).includes(wanted) || stepState(shown(node)).word.replaceAll(" ", "_").includes(wanted);
  }
  if (field) return (node) => String(node[field] ?? "").toLowerCase().includes(wanted);
  return (node) => `${node.id} ${node.worker} ${node.action} ${shown(node)}`.toLowerCase().includes(term);
}
