/** One call: a room with an agent in it, from join to leave. Knows nothing of the page. */

import {
  DisconnectReason,
  Room,
  RoomEvent,
  Track,
  setLogLevel,
} from "./vendor/livekit-client.esm.mjs";
import { Problem, callAgain, endCall, fetchEngine, makeCall } from "./api.js";
import { TOPIC } from "./transcript.js";

const STATE_ATTRIBUTE = "lk.agent.state";
const RETRY_MS = 500;
const CALL_AGAIN_MS = 3000; // an agent on its way arrives in less; calling again would end its job

setLogLevel("warn");

/**
 * Events, given to `handlers`: agentState(state), agentTrack(track), words(reader, isAgent),
 * reconnecting(), reconnected(), over(problem or null).
 */
export class Call {
  constructor(handlers, options) {
    this.handlers = handlers;
    this.options = options;
    this.isOver = false;
    this.hasAgentTrack = false;
    this.room = new Room({
      reconnectPolicy: {
        nextRetryDelayInMs: ({ elapsedMs }) =>
          elapsedMs < 1000 * options.reconnect_timeout_s ? RETRY_MS : null,
      },
    });
    this.listen();
  }

  /** Makes a room, joins it with an open microphone, and begins to wait for the agent. */
  async join(wishes, microphone) {
    this.microphone = microphone;
    const { url, token, room } = await makeCall(wishes);
    this.name = room;
    if (this.isOver) return this.end();
    try {
      await this.room.connect(url, token);
    } catch (error) {
      if (this.isOver) return this.end();
      throw new Problem("livekit-gone");
    }
    this.waiting = setTimeout(() => this.giveUp(), 1000 * this.options.agent_timeout_s);
    this.calling = setInterval(() => this.callAgain(), CALL_AGAIN_MS);
    await this.room.localParticipant.publishTrack(microphone, { source: Track.Source.Microphone });
    await this.room.startAudio();
  }

  async mute(isMuted) {
    await (isMuted ? this.microphone.mute() : this.microphone.unmute());
  }

  async switchMicrophone(deviceId) {
    await this.room.switchActiveDevice("audioinput", deviceId);
  }

  /** Leaves; the room ends with it, so that the agent's slot is free at once. */
  leave() {
    this.finish(null);
  }

  finish(problem) {
    if (this.isOver) return;
    this.isOver = true;
    this.stopWaiting();
    this.end();
    this.handlers.over(problem);
  }

  end() {
    this.microphone?.stop();
    this.room.disconnect();
    if (this.name) endCall(this.name);
  }

  get hasAgent() {
    return [...this.room.remoteParticipants.values()].some(({ isAgent }) => isAgent);
  }

  stopWaiting() {
    clearTimeout(this.waiting);
    clearInterval(this.calling);
  }

  /** Once a slot is free, whoever waits gets it. */
  async callAgain() {
    if (this.hasAgent || (await isFull())) return;
    await callAgain(this.name).catch(() => null);
  }

  async giveUp() {
    if (this.hasAgentTrack) return;
    const allBusy = await isFull();
    if (this.hasAgentTrack) return;
    const cause = this.hasAgent ? "agent-silent" : allBusy ? "all-busy" : "no-agent";
    this.finish(new Problem(cause));
  }

  listen() {
    const { room, handlers } = this;
    room
      .on(RoomEvent.TrackSubscribed, (track, publication, participant) => {
        if (track.kind !== Track.Kind.Audio) return;
        track.attach();
        this.hasAgentTrack = true;
        this.stopWaiting();
        handlers.agentTrack(track);
        const state = participant.attributes[STATE_ATTRIBUTE];
        if (state) handlers.agentState(state);
      })
      .on(RoomEvent.TrackUnsubscribed, (track) => track.detach())
      .on(RoomEvent.ParticipantAttributesChanged, (changed, participant) => {
        const state = changed[STATE_ATTRIBUTE];
        if (participant.isAgent && state) handlers.agentState(state);
      })
      .on(RoomEvent.ParticipantDisconnected, (participant) => {
        if (participant.isAgent) this.finish(new Problem("agent-left"));
      })
      .on(RoomEvent.SignalReconnecting, () => handlers.reconnecting())
      .on(RoomEvent.Reconnecting, () => handlers.reconnecting())
      .on(RoomEvent.Reconnected, () => handlers.reconnected())
      .on(RoomEvent.Disconnected, (reason) => this.finish(new Problem(causeOf(reason))));
    room.registerTextStreamHandler(TOPIC, (reader, { identity }) =>
      handlers.words(reader, identity !== room.localParticipant.identity),
    );
  }
}

async function isFull() {
  const engine = await fetchEngine().catch(() => null);
  return engine !== null && engine.used >= engine.slots;
}

function causeOf(reason) {
  switch (reason) {
    case DisconnectReason.DUPLICATE_IDENTITY:
      return "replaced";
    case DisconnectReason.ROOM_DELETED:
    case DisconnectReason.PARTICIPANT_REMOVED:
    case DisconnectReason.ROOM_CLOSED:
      return "agent-left";
    default:
      return "livekit-gone";
  }
}
