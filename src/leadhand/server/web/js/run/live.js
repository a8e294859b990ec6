// One open run: a signal for each step, so that an event redraws what it is about and no more.
import { batch, signal } from "../lib.js";
import { api } from "../api.js";
import { follow, onRefetch, resource, soon } from "../store.js";
import { changesMore, concernsPeople, patchHead, patchNode, tally } from "../patch.js";
import { shown } from "../status.js";

const LINES_MAX = 5000;

/** Whether two lists hold the same pairs in the same order. */
function alike(one, other) {
  return one.length === other.length && one.every((pair, place) => pair[0] === other[place][0] && pair[1] === other[place][1]);
}

export class LiveRun {
  /** @param {string} run */
  constructor(run) {
    this.run = run;
    this.head = signal(null);
    this.error = signal(null);
    this.review = resource((control) => api.review(run, control));
    this.counts = signal({});
    /** Changes when there are other steps than before. */
    this.shape = signal({ ids: [], edges: [], replaces: [], revision: null });
    /** @type {Map<string, ReturnType<typeof signal>>} */
    this.nodes = new Map();
    /** Events of this run since it was opened. */
    this.lines = signal([]);
    /** The steps that the last events touched (`whole`: perhaps all), for what shows one step. */
    this.touched = signal({ steps: new Set(), whole: false });
    this.changes = new Set();
    this.turns = {};
    /** For each document on its way: the events that came since it was asked for. */
    this.meanwhile = new Set();
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

  /** A document may be older than events that overtook it: they are applied to it again. */
  async fetch(name, ask, take) {
    const turn = (this.turns[name] = (this.turns[name] ?? 0) + 1);
    const events = [];
    this.meanwhile.add(events);
    try {
      const doc = await ask(this.run);
      if (!this.closed && turn === this.turns[name]) batch(() => take(doc, events));
    } catch (error) {
      if (!this.closed && (name === "head" || !this.shape.value.ids.length)) this.error.value = error;
    }
    this.meanwhile.delete(events);
  }

  loadHead() {
    return this.fetch("head", api.run, (head, events) => {
      this.head.value = events.reduce(patchHead, head);
      this.error.value = null;
    });
  }

  loadGraph() {
    return this.fetch("graph", api.graph, (graph, events) => {
      this.take(graph);
      const counts = { ...this.counts.peek() };
      for (const event of events) this.readSteps(event, counts);
      this.counts.value = counts;
    });
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
    const replaces = graph.replaces ?? [];
    const same = known.ids.length === ids.length && ids.every((id, place) => id === known.ids[place])
      && alike(known.edges, graph.edges) && alike(known.replaces, replaces);
    if (!same || known.revision === null) this.shape.value = { ids, edges: graph.edges, replaces, revision: graph.revision ?? 0 };
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
    if (events.some((event) => event.run === `${this.run}-rollback`)) this.soonHead(); // it tells how its rollback stands
    const mine = events.filter((event) => event.run === this.run);
    if (!mine.length) return;
    for (const events of this.meanwhile) events.push(...mine);
    const counts = { ...this.counts.peek() };
    let head = this.head.peek();
    const touched = new Set();
    let whole = false;
    for (const event of mine) {
      if (head) head = patchHead(head, event);
      for (const id of this.readSteps(event, counts)) touched.add(id);
      if (changesMore(event)) (this.soonGraph(), this.soonHead(), (whole = true));
      if (concernsPeople(event)) (this.review.soon(), this.soonHead());
    }
    if (head && head.status !== this.head.peek()?.status) this.soonHead();
    this.head.value = head;
    this.counts.value = counts;
    if (touched.size || whole) this.touched.value = { steps: touched, whole };
    const lines = [...this.lines.peek(), ...mine.filter((event) => event.text)];
    this.lines.value = lines.length > LINES_MAX ? lines.slice(-LINES_MAX) : lines;
  }

  /** Take in the steps of an event's patch; return the ids of the steps that it touches. */
  readSteps(event, counts) {
    const step = event.patch?.step;
    if (!step) return event.step ? [event.step] : [];
    const found = [step, ...(event.patch.dependents ?? [])];
    for (const each of found) this.patchStep(each, counts);
    return found.map((each) => each.id);
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
