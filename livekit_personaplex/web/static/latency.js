/** The delay of a call, from what a browser and the engine can measure. */

import { fetchEngine } from "./api.js";

const EVERY_MS = 2000;
const SOUND = 0.35; // of the meter: about -41 dB, over what a quiet room gives
const PAUSE_MS = 400; // shorter ones are within speech
const LONGEST_ANSWER_MS = 8000;

const show = (id, text) => (document.getElementById(id).textContent = text);
const inMs = (ms) => (ms === null ? "–" : `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`);

/** How long the agent takes to begin after the caller has stopped, from both levels. */
export class AnswerTimer {
  constructor() {
    this.userMs = this.agentMs = -Infinity;
  }

  /** @returns {number | null} milliseconds, when an answer has just begun */
  update(agent, user, nowMs) {
    if (user > SOUND) this.userMs = nowMs;
    if (agent <= SOUND) return null;
    const begins = nowMs - this.agentMs > PAUSE_MS;
    const wasQuietMs = nowMs - this.userMs;
    const isAnswer = begins && user <= SOUND && this.userMs > this.agentMs;
    this.agentMs = nowMs;
    return isAnswer && wasQuietMs < LONGEST_ANSWER_MS ? wasQuietMs : null;
  }
}

export class Latency {
  constructor() {
    this.root = document.getElementById("latency");
  }

  /** Measures until `stop`. @param track the agent's @param options those of the server */
  start(track, options) {
    this.stop();
    this.track = track;
    this.options = options;
    this.before = { delay: 0, count: 0 };
    show("delay", "measuring…");
    show("delay-answer", "–");
    show("delay-frame", inMs(options.frame_ms));
    show("delay-head", inMs(options.head_start_ms));
    this.root.hidden = false;
    this.timer = setInterval(() => this.measure(), EVERY_MS);
    this.measure();
  }

  stop() {
    clearInterval(this.timer);
    this.track = undefined;
    this.root.hidden = true;
  }

  answered(ms) {
    show("delay-answer", `${(ms / 1000).toFixed(1)} s`);
  }

  async measure() {
    const { track } = this;
    const [report, engine] = await Promise.all([
      track.getRTCStatsReport(),
      fetchEngine().catch(() => null),
    ]);
    if (track !== this.track || !report) return;
    const network = roundTripMs(report);
    const buffer = this.bufferMs(report);
    const step = engine?.step_ms ?? null;
    show("delay-network", inMs(network));
    show("delay-buffer", inMs(buffer));
    show("delay-step", inMs(step));
    if (network === null || buffer === null) return;
    const sum = network + buffer + (step ?? 0) + this.options.frame_ms + this.options.head_start_ms;
    show("delay", `about ${Math.round(sum)} ms`);
  }

  /** Mean time that samples waited here since the last look. */
  bufferMs(report) {
    for (const stat of report.values()) {
      if (stat.type !== "inbound-rtp" || !stat.jitterBufferEmittedCount) continue;
      const now = { delay: stat.jitterBufferDelay, count: stat.jitterBufferEmittedCount };
      const { before } = this;
      this.before = now;
      if (now.count > before.count) {
        return (1000 * (now.delay - before.delay)) / (now.count - before.count);
      }
    }
    return null;
  }
}

function roundTripMs(report) {
  for (const stat of report.values()) {
    const isUsed = stat.type === "candidate-pair" && stat.state === "succeeded" && stat.nominated;
    if (isUsed && stat.currentRoundTripTime !== undefined) return 1000 * stat.currentRoundTripTime;
  }
  return null;
}
