/**
 * A call from a page of your own, with a token from ../../token_service.py.
 *
 * In this folder: npm install livekit-client@2, then python -m http.server 8000, and open
 * http://localhost:8000. The token service must name that address in ORIGINS.
 */

import { Room, RoomEvent, Track } from "livekit-client";

const AGENT_TIMEOUT_MS = 20_000;
const [login, leave, state, words] = ["login", "leave", "state", "words"].map((id) =>
  document.getElementById(id),
);

login.addEventListener("submit", async (event) => {
  event.preventDefault();
  setInCall(true);
  try {
    await call(await fetchToken());
  } catch (error) {
    setInCall(false);
    state.textContent = error.message;
  }
});

/** The service knows the caller by the secret, and chooses room, persona and voice. */
async function fetchToken() {
  const { service, agent, secret } = login.elements;
  const url = new URL(`/token?agent=${encodeURIComponent(agent.value)}`, service.value);
  const headers = { Authorization: `Bearer ${secret.value}` };
  const response = await fetch(url, { method: "POST", headers });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

async function call({ server_url: url, participant_token: token }) {
  const room = new Room();
  let problem = "The call is over.";
  const end = (why) => {
    problem = why;
    return room.disconnect();
  };
  const waiting = setTimeout(() => end("No agent came: all are busy. Call again."), AGENT_TIMEOUT_MS);
  leave.onclick = () => end("You left.");
  room
    .on(RoomEvent.TrackSubscribed, (track) => {
      if (track.kind !== Track.Kind.Audio) return;
      clearTimeout(waiting);
      document.body.append(track.attach());
    })
    .on(RoomEvent.ParticipantAttributesChanged, ({ "lk.agent.state": now }, { isAgent }) => {
      if (isAgent && now) state.textContent = `The agent is ${now}.`;
    })
    .on(RoomEvent.ParticipantDisconnected, ({ isAgent }) => isAgent && end("The agent left."))
    .on(RoomEvent.Disconnected, () => {
      clearTimeout(waiting);
      document.querySelectorAll("audio:not([id])").forEach((element) => element.remove());
      setInCall(false);
      state.textContent = problem;
    });
  room.registerTextStreamHandler("lk.transcription", (reader, { identity }) =>
    show(reader, identity === room.localParticipant.identity ? "You" : "Agent"),
  );
  state.textContent = "Calling.";
  await room.connect(url, token);
  await room.localParticipant.setMicrophoneEnabled(true); // echo is cancelled by default
  await room.startAudio();
}

/** The agent's words come in pieces; what the caller said comes whole, and again when corrected. */
async function show(reader, speaker) {
  const id = reader.info.attributes["lk.segment_id"] ?? reader.info.id;
  let line = document.getElementById(id);
  if (line === null) {
    line = document.createElement("p");
    line.id = id;
    words.append(line);
  }
  if (speaker === "You" || line.textContent === "") line.textContent = `${speaker}: `;
  try {
    for await (const piece of reader) line.textContent += piece;
  } catch {
    // the call ended in the middle of it: what came stays
  }
}

function setInCall(isInCall) {
  leave.disabled = !isInCall;
  login.querySelector("button").disabled = isInCall;
}
