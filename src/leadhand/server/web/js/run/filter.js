// `status:failed worker:fetch rides`: which steps are meant. Pure.
import { shown, stepState } from "../status.js";

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
