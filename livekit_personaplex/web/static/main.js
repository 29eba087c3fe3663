/** The page: puts form, call, lanes, words and figures together. */

import { Problem, endCall, fetchOptions } from "./api.js";
import { Call } from "./call.js";
import { Lanes } from "./lanes.js";
import { AnswerTimer, Latency } from "./latency.js";
import { MicrophoneList, openMicrophone } from "./microphone.js";
import { hideProblem, showProblem } from "./problems.js";
import { Settings } from "./settings.js";
import { Transcript } from "./transcript.js";

const AGENT_STATES = {
  initializing: "Starting",
  idle: "Idle",
  listening: "Listening",
  thinking: "Thinking",
  speaking: "Speaking",
};
const BACK_FOR_MS = 4000;
const NOISE =
  "The model in use is a tiny one with random weights: its speech is noise and its words are jumbled. It shows that the call works.";

const $ = (id) => document.getElementById(id);
const buttons = { join: $("join"), mute: $("mute"), leave: $("leave"), rejoin: $("rejoin") };

const transcript = new Transcript();
const latency = new Latency();
const settings = new Settings(() => offerRejoin());
const microphones = new MicrophoneList($("microphone"));
let answerTimer = new AnswerTimer();
const lanes = new Lanes((agent, user, nowMs) => {
  const ms = answerTimer.update(agent, user, nowMs);
  if (ms !== null) latency.answered(ms);
});
let options = null;
let call = null;
let madeWith = "";

/** Phases: idle, joining (microphone and room), waiting (for the agent), live. */
function setPhase(phase) {
  document.body.dataset.phase = phase;
  const isIdle = phase === "idle";
  buttons.join.hidden = !isIdle;
  buttons.leave.hidden = isIdle;
  buttons.leave.textContent = phase === "live" ? "Leave" : "Cancel";
  buttons.mute.hidden = isIdle || phase === "joining";
  $("join-hint").hidden = !isIdle;
  offerRejoin();
}

function setConnection(state, text) {
  $("connection").dataset.state = state;
  setText("connection", text);
}

/** Screen readers say a status anew whenever it is written, so only what changed is. */
function setText(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

function setBanner(text) {
  $("banner").hidden = text === "";
  setText("banner", text);
}

function usualBanner() {
  return options?.is_noise ? NOISE : "";
}

function setMuted(isMuted) {
  buttons.mute.setAttribute("aria-pressed", String(isMuted));
  setText("user-state", isMuted ? "Muted" : "Microphone on");
}

function offerRejoin() {
  const isLive = document.body.dataset.phase === "live";
  $("rejoin-field").hidden = !(isLive && JSON.stringify(settings.wishes()) !== madeWith);
}

async function loadOptions() {
  options = await fetchOptions();
  settings.fill(options);
  setText("caller-words", options.caller_words);
  setBanner(usualBanner());
}

async function join() {
  if (call || !settings.check()) return;
  hideProblem();
  setPhase("joining");
  setConnection("trying", "Joining");
  setText("agent-state", "Not here yet");
  setText("user-state", "Opening the microphone");
  buttons.leave.focus();
  transcript.clear();
  answerTimer = new AnswerTimer();
  const mine = (call = new Call(handlersOf(), options ?? {}));
  try {
    if (!options) {
      await loadOptions();
      mine.options = options;
    }
    const [microphone] = await Promise.all([openMicrophone($("microphone").value), lanes.start()]);
    if (mine.isOver) return microphone.stop();
    microphones.refresh();
    lanes.listen(lanes.user, microphone.mediaStreamTrack);
    setMuted(false);
    const wishes = settings.wishes();
    madeWith = JSON.stringify(wishes);
    await mine.join(wishes, microphone);
    if (mine.isOver || mine.hasAgentTrack) return;
    setPhase("waiting");
    setConnection("on", "Connected");
    setText("agent-state", "Being called");
  } catch (error) {
    mine.finish(error);
  }
}

function handlersOf() {
  return {
    agentState: (state) => setText("agent-state", AGENT_STATES[state] ?? state),
    agentTrack: (track) => {
      const hadFocus = document.activeElement === buttons.leave;
      setPhase("live");
      if (hadFocus) buttons.mute.focus();
      setConnection("on", "Connected");
      setText("agent-state", "Listening");
      lanes.listen(lanes.agent, track.mediaStreamTrack);
      latency.start(track, options);
    },
    words: (reader, isAgent) => transcript.read(reader, isAgent),
    reconnecting: () => {
      setConnection("trying", "Reconnecting");
      setBanner("The connection is lost. Trying to get it back…");
    },
    reconnected: () => {
      setConnection("on", "Connected");
      setBanner("The connection is back.");
      setTimeout(() => $("connection").dataset.state === "on" && setBanner(usualBanner()), BACK_FOR_MS);
    },
    over: (problem) => {
      const focused = document.activeElement;
      const hadFocus = focused === buttons.leave || focused === buttons.mute;
      const wasLive = document.body.dataset.phase === "live";
      call = null;
      lanes.stop();
      latency.stop();
      setBanner(usualBanner());
      setPhase("idle");
      setConnection(problem ? "lost" : "off", wasLive && problem ? "Call ended" : "Not connected");
      setText("agent-state", "Not in a call");
      setText("user-state", "Microphone off");
      buttons.mute.setAttribute("aria-pressed", "false");
      if (problem) showProblem(problem);
      if (hadFocus) buttons.join.focus();
    },
  };
}

async function rejoin(event) {
  event.preventDefault();
  if (!call || $("rejoin-field").hidden) return;
  call.leave();
  await join();
}

async function toggleMute() {
  const isMuted = buttons.mute.getAttribute("aria-pressed") !== "true";
  setMuted(isMuted);
  await call?.mute(isMuted);
}

async function switchMicrophone({ target }) {
  if (!call?.microphone) return;
  try {
    await call.switchMicrophone(target.value);
    lanes.listen(lanes.user, call.microphone.mediaStreamTrack);
  } catch (error) {
    showProblem(new Problem("microphone-busy"));
  }
}

buttons.join.addEventListener("click", join);
buttons.leave.addEventListener("click", () => call?.leave());
buttons.mute.addEventListener("click", toggleMute);
$("settings").addEventListener("submit", rejoin);
$("microphone").addEventListener("change", switchMicrophone);
window.addEventListener("pagehide", () => call?.name && endCall(call.name));

setPhase("idle");
microphones.refresh();
loadOptions().catch(showProblem);
