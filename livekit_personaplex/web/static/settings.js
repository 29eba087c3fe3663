/** The form: what the next call's agent is to be. */

import { measurePersona } from "./api.js";
import { PHRASINGS } from "./personas.js";

const NUMBERS = ["text_temperature", "text_top_k", "audio_temperature", "audio_top_k"];
const MEASURE_AFTER_MS = 250;

const field = (id) => document.getElementById(id);

export class Settings {
  /** @param {() => void} onChange called when a field has changed */
  constructor(onChange) {
    this.form = field("settings");
    this.usual = {};
    this.timer = 0;
    this.form.addEventListener("input", onChange);
    field("persona").addEventListener("input", () => this.measureSoon());
    field("phrasing").append(...PHRASINGS.map(({ name, text }) => new Option(name, text)));
    field("phrasing").addEventListener("change", ({ target }) => {
      if (target.value) field("persona").value = target.value;
      target.value = "";
      this.measureSoon();
      onChange();
    });
  }

  /** Fills the form with what the server offers. */
  fill(options) {
    field("voice").replaceChildren(...options.voices.map((name) => new Option(name)));
    if (options.voices.includes(options.voice)) field("voice").value = options.voice;
    field("persona").value = options.persona;
    this.usual = options.sampling;
    for (const name of NUMBERS) field(name).value = options.sampling[name];
    for (const name of ["text_temperature", "audio_temperature"]) {
      field(name).max = options.max_temperature;
    }
    field("greeting-field").hidden = !options.keys.includes("greeting");
    field("first-speaker-field").hidden = !options.keys.includes("first_speaker");
    this.measureSoon(0);
  }

  /** Whether the form holds nothing that the browser itself refuses; shows what it refuses. */
  check() {
    const invalid = this.form.querySelector(":invalid");
    if (!invalid) return true;
    const details = invalid.closest("details");
    if (details) details.open = true;
    this.form.reportValidity();
    return false;
  }

  /** What a call is made with: only what differs from the usual. */
  wishes() {
    const wishes = { voice: field("voice").value, persona: field("persona").value.trim() };
    for (const [key, id] of [
      ["greeting", "greeting"],
      ["first_speaker", "first-speaker"],
    ]) {
      const value = field(id).value.trim();
      if (value && !field(`${id}-field`).hidden) wishes[key] = value;
    }
    if (field("seed").value) wishes.seed = Number(field("seed").value);
    if (field("greedy").checked) wishes.greedy = true;
    for (const name of NUMBERS) {
      const text = field(name).value;
      if (text !== "" && Number(text) !== this.usual[name]) wishes[name] = Number(text);
    }
    return wishes;
  }

  measureSoon(afterMs = MEASURE_AFTER_MS) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.measure(), afterMs);
  }

  async measure() {
    const persona = field("persona").value;
    const length = await measurePersona(persona).catch(() => null);
    if (!length || persona !== field("persona").value) return;
    const meter = field("persona-meter");
    const limit = length.max_tokens;
    Object.assign(meter, { max: limit, high: limit * 0.8, low: limit * 0.6, optimum: 0, value: length.tokens });
    const isOver = length.tokens > limit;
    field("persona-length").classList.toggle("over", isOver);
    field("persona-tokens").textContent =
      `${length.tokens} of ${limit.toLocaleString("en")} tokens` +
      (isOver ? ": too long for the model’s window" : "");
  }
}
