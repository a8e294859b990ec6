// The one place that knows where the third-party modules are.
import { h, render, Fragment, Component } from "../_npm/preact.mjs";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "../_npm/hooks.mjs";
import { signal, computed, effect, batch, untracked, useSignal, useComputed } from "../_npm/signals.mjs";
import htm from "../_npm/htm.mjs";

const html = htm.bind(h);

export {
  h, html, render, Fragment, Component,
  useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback,
  signal, computed, effect, batch, untracked, useSignal, useComputed,
};
