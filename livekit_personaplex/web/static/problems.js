/** What went wrong, in words that say what to do. */

const PROBLEMS = {
  "no-microphone": [
    "No microphone found",
    "Connect a microphone or headset, check that the system sees it, and join again.",
  ],
  "permission-refused": [
    "The microphone is not allowed",
    "Allow it for this page (the icon beside the address, or the system’s privacy settings), and join again.",
  ],
  "microphone-busy": [
    "The microphone cannot be opened",
    "Another program may be using it. Close that program or choose another microphone, and join again.",
  ],
  "insecure-page": [
    "This browser gives no microphone to this page",
    "Open it as http://127.0.0.1 or http://localhost on this machine.",
  ],
  "all-busy": [
    "All slots are busy",
    "As many calls as the engine can hold are going on, so no agent came. Join again when one has ended.",
  ],
  "no-agent": [
    "No agent came",
    "The engine has a free slot, but no worker answered the call. Look at the worker’s output, and join again.",
  ],
  "agent-silent": [
    "The agent could not start",
    "It came but did not begin to speak. Its output says why; voice or persona may be the reason.",
  ],
  "agent-left": ["The agent has left", "The call is over. Join again for a new one."],
  "livekit-gone": [
    "The connection is lost",
    "The LiveKit server does not answer any more. Is it still running? Join again when it is.",
  ],
  "page-server-gone": [
    "This page’s server does not answer",
    "It may have been stopped. Start it again, and reload the page.",
  ],
  "engine-gone": ["The engine does not answer", "It may be starting or stopped. Try again in a moment."],
  "refused-settings": ["These settings cannot be used", "Change them, and join again."],
  "replaced": ["The call goes on elsewhere", "It was joined from another page."],
  "unexpected": ["Something went wrong", "Join again; if it happens again, look at the browser’s console."],
};

/** Shows a problem. @param {{cause?: string, detail?: string}} problem */
export function showProblem(problem) {
  const cause = problem.cause in PROBLEMS ? problem.cause : "unexpected";
  if (cause === "unexpected") console.error(problem);
  const [title, text] = PROBLEMS[cause];
  const section = document.getElementById("problem");
  section.dataset.cause = cause;
  document.getElementById("problem-title").textContent = title;
  document.getElementById("problem-text").textContent = problem.detail || text;
  section.hidden = false;
  section.scrollIntoView({ block: "nearest" });
}

export function hideProblem() {
  document.getElementById("problem").hidden = true;
}
