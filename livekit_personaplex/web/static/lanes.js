/** Level and recent past of both sides. Both may sound at once, so each has a lane of its own. */

const BARS_PER_S = 16;
const BAR_PX = 4;
const GAP_PX = 3;
const FLOOR_DB = -60;
const CEILING_DB = -6;

/** Share of the meter that a loudness fills. */
function levelOf(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  const db = 10 * Math.log10(sum / samples.length + 1e-12);
  return Math.min(1, Math.max(0, (db - FLOOR_DB) / (CEILING_DB - FLOOR_DB)));
}

/** One side: a track's level now, and a bar for each moment that has passed. */
export class Lane {
  constructor(id) {
    this.root = document.getElementById(id);
    this.canvas = this.root.querySelector("canvas");
    this.bar = this.root.querySelector(".level span");
    this.bars = [];
    this.peak = 0;
    this.level = 0;
  }

  /** Listens to a track from now on. @param {MediaStreamTrack} track */
  listen(track, audio) {
    this.stop();
    this.source = audio.createMediaStreamSource(new MediaStream([track]));
    this.analyser = audio.createAnalyser();
    this.analyser.fftSize = 1024;
    this.samples = new Float32Array(this.analyser.fftSize);
    this.source.connect(this.analyser);
  }

  stop() {
    this.source?.disconnect();
    this.source = this.analyser = undefined;
    this.level = 0;
  }

  measure() {
    if (this.analyser) {
      this.analyser.getFloatTimeDomainData(this.samples);
      this.level = levelOf(this.samples);
    }
    this.peak = Math.max(this.peak, this.level);
    this.bar.style.setProperty("--level", this.level.toFixed(3));
    this.root.dataset.level = this.level.toFixed(3);
  }

  push() {
    this.bars.push(this.peak);
    this.peak = 0;
    const most = Math.ceil(this.canvas.clientWidth / (BAR_PX + GAP_PX));
    this.bars.splice(0, this.bars.length - most);
  }

  clear() {
    this.bars = [];
    this.peak = 0;
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const draw = this.canvas.getContext("2d");
    draw.setTransform(scale, 0, 0, scale, 0, 0);
    draw.clearRect(0, 0, width, height);
    draw.fillStyle = getComputedStyle(this.canvas).color;
    this.bars.forEach((level, i) => {
      const x = width - (this.bars.length - i) * (BAR_PX + GAP_PX);
      const tall = Math.max(BAR_PX, level * (height - 12));
      draw.globalAlpha = level > 0 ? 1 : 0.25;
      draw.beginPath();
      draw.roundRect(x, (height - tall) / 2, BAR_PX, tall, BAR_PX / 2);
      draw.fill();
    });
  }
}

/** Both lanes, on one clock. */
export class Lanes {
  /** @param {(agent: number, user: number, nowMs: number) => void} onLevels told both levels */
  constructor(onLevels) {
    this.agent = new Lane("agent-lane");
    this.user = new Lane("user-lane");
    this.onLevels = onLevels;
    this.isRunning = false;
  }

  async start() {
    this.agent.clear();
    this.user.clear();
    this.audio = new AudioContext();
    await this.audio.resume();
    this.isRunning = true;
    this.nextBarMs = performance.now();
    requestAnimationFrame((nowMs) => this.frame(nowMs));
  }

  listen(lane, track) {
    if (this.isRunning) lane.listen(track, this.audio);
  }

  stop() {
    this.isRunning = false;
    for (const lane of [this.agent, this.user]) {
      lane.stop();
      lane.measure();
    }
    this.audio?.close();
    this.audio = undefined;
  }

  frame(nowMs) {
    if (!this.isRunning) return;
    this.agent.measure();
    this.user.measure();
    this.onLevels(this.agent.level, this.user.level, nowMs);
    if (nowMs >= this.nextBarMs) {
      this.nextBarMs = Math.max(this.nextBarMs + 1000 / BARS_PER_S, nowMs);
      for (const lane of [this.agent, this.user]) {
        lane.push();
        lane.draw();
      }
    }
    requestAnimationFrame((later) => this.frame(later));
  }
}
