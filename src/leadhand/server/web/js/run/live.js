// One open run: a signal for each step, so that an event redraws what it is about and no more.
import { signal } from "../lib.js";
import { api } from "../api.js";
import { follow, onRefetch, resource, soon } from "../store.js";
import { concernsPeople, isStructural, patchHead, patchNode, tally } from "../patch.js";
import { shown } from "../status.js";

const LINES_MAX = 5000;

export class LiveRun {
  /** @param {string} run */
  constructor(run) {
    this.run = run;
    this.head = signal(null);
    this.error = signal(null);
    this.review = resource((control) => api.review(run, control));
    this.counts = signal({});
    /** Changes when there are other steps than before. */
    this.shape = signal({ ids: [], edges: [], revision: null });
    /** @type {Map<string, ReturnType<typeof signal>>} */
    this.nodes = new Map();
    /** Events of this run since it was opened. */
    this.lines = signal([]);
    /** The step that something last happened to, for what shows one step. */
    this.touched = signal({ step: "", at: 0 });
    this.changes = new Set();
    this.soonHead = soon(() => this.loadHead(), 250);
    this.soonGraph = soon(() => this.loadGraph(), 150);
    this.undo = [follow((events) => this.read(events)), onRefetch(() => this.load())];
    this.load();
  }

  close() {
    for (const undo of this.undo) undo();
    this.closed = true;
  }

  load() {
    this.loadHead();
    this.loadGraph();
    this.review.refresh();
  }

  async loadHead() {
    try {
      const head = await api.run(this.run);
      if (!this.closed) [this.head.value, this.error.value] = [head, null];
    } catch (error) {
      if (!this.closed) this.error.value = error;
    }
  }

  async loadGraph() {
    try {
      const graph = await api.graph(this.run);
      if (!this.closed) this.take(graph);
    } catch (error) {
      if (!this.closed && !this.shape.value.ids.length) this.error.value = error;
    }
  }

  /** A whole graph: what is new gets a signal, what is known a value. */
  take(graph) {
    const known = this.shape.value;
    const ids = graph.nodes.map((node) => node.id);
    for (const node of graph.nodes) {
      const held = this.nodes.get(node.id);
      if (held) this.set(held, { ...held.value, ...node });
      else this.nodes.set(node.id, signal(node));
    }
    const kept = new Set(ids);
    for (const id of this.nodes.keys()) if (!kept.has(id)) this.nodes.delete(id);
    const same = known.ids.length === ids.length && known.edges.length === graph.edges.length
      && ids.every((id, place) => id === known.ids[place])
      && graph.edges.every((edge, place) => edge[0] === known.edges[place][0] && edge[1] === known.edges[place][1]);
    if (!same || known.revision === null) this.shape.value = { ids, edges: graph.edges, revision: graph.revision ?? 0 };
    this.counts.value = tally(this.all());
  }

  all() {
    return Array.from(this.nodes.values(), (node) => node.peek());
  }

  /** @param {(before: object, after: object) => void} heard */
  onChange(heard) {
    this.changes.add(heard);
    return () => this.changes.delete(heard);
  }

  set(held, after) {
    const before = held.peek();
    if (before === after) return;
    held.value = after;
    for (const heard of this.changes) heard(before, after);
  }

  read(events) {
    const mine = events.filter((event) => event.run === this.run);
    if (!mine.length) return;
    const counts = { ...this.counts.peek() };
    let head = this.head.peek();
    let touched = null;
    for (const event of mine) {
      if (head) head = patchHead(head, event);
      touched = this.readStep(event, counts) ?? touched;
      if (isStructural(event)) this.soonGraph();
      if (concernsPeople(event)) (this.review.soon(), this.soonHead());
    }
    if (head && head.status !== this.head.peek()?.status) this.soonHead();
    this.head.value = head;
    this.counts.value = counts;
    if (touched) this.touched.value = { step: touched, at: Date.now() };
    const lines = [...this.lines.peek(), ...mine.filter((event) => event.text)];
    this.lines.value = lines.length > LINES_MAX ? lines.slice(-LINES_MAX) : lines;
  }

  readStep(event, counts) {
    const step = event.patch?.step;
    if (!step) return event.step ?? null;
    this.patchStep(step, counts);
    for (const other of event.patch.dependents ?? []) this.patchStep(other, counts);
    return step.id;
  }

  patchStep(step, counts) {
    const held = this.nodes.get(step.id);
    if (!held) return void this.soonGraph();
    const before = held.peek();
    const after = patchNode(before, step);
    if (shown(before) !== shown(after)) {
      counts[shown(before)] = (counts[shown(before)] ?? 1) - 1;
      counts[shown(after)] = (counts[shown(after)] ?? 0) + 1;
    }
    this.set(held, after);
  }
}
