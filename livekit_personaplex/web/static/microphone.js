/** Microphones: which there are, and opening one. */

import { createLocalAudioTrack } from "./vendor/livekit-client.esm.mjs";
import { Problem } from "./api.js";

const CAUSES = {
  NotFoundError: "no-microphone",
  OverconstrainedError: "no-microphone",
  NotAllowedError: "permission-refused",
  SecurityError: "permission-refused",
  NotReadableError: "microphone-busy",
  AbortError: "microphone-busy",
};

/** Opens a microphone; asks for permission where there is none yet. Throws `Problem`. */
export async function openMicrophone(deviceId) {
  if (!navigator.mediaDevices?.getUserMedia) throw new Problem("insecure-page");
  try {
    return await createLocalAudioTrack({
      deviceId: deviceId ? { exact: deviceId } : undefined,
      echoCancellation: true, // without it the model hears itself
      noiseSuppression: true,
      autoGainControl: true,
    });
  } catch (error) {
    throw new Problem(CAUSES[error.name] ?? "unexpected", CAUSES[error.name] ? "" : String(error));
  }
}

/** Keeps a list of the microphones up to date. @param {HTMLSelectElement} select */
export class MicrophoneList {
  constructor(select) {
    this.select = select;
    navigator.mediaDevices?.addEventListener("devicechange", () => this.refresh());
  }

  /** Names are known only once permission was given. */
  async refresh() {
    const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
    const microphones = devices.filter(({ kind, deviceId }) => kind === "audioinput" && deviceId);
    const { value } = this.select;
    this.select.replaceChildren(
      ...(microphones.length ? [] : [new Option("System default", "")]),
      ...microphones.map(({ label, deviceId }) => new Option(label || "Microphone", deviceId)),
    );
    if (microphones.some(({ deviceId }) => deviceId === value)) this.select.value = value;
  }
}
