// Playing, pausing and stepping through moments; both pages extend it.

/** Steps per second. */
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 256, 1024];
const DEFAULT_SPEED = 4;
/** Longest time of a movement in milliseconds. */
const LONGEST_GLIDE = 140;

/**
 * A subclass defines `last` (the index of the last moment), `finished` (whether none will follow),
 * `show()`, `showPlaying()` and `showSpeed()`.
 */
class Playback {
  constructor() {
    this.index = 0;
    this.playing = false;
    this.level = DEFAULT_SPEED;
  }

  get speed() { return SPEEDS[this.level]; }

  goTo(index) {
    this.index = Math.max(0, Math.min(this.last, index));
    this.show();
  }

  stopAt(index) {
    this.setPlaying(false);
    this.goTo(index);
  }

  stepForward() { this.stopAt(this.index + 1); }

  toTheEnd() { this.stopAt(this.last); }

  togglePlaying() {
    if (!this.playing && this.index === this.last && this.finished) this.goTo(0);
    this.setPlaying(!this.playing);
  }

  setPlaying(playing) {
    this.playing = playing;
    this.showPlaying();
    cancelAnimationFrame(this.tick);
    if (!playing) return;
    let before = performance.now(), due = 0;
    const tick = (now) => {
      due += ((now - before) / 1000) * this.speed;
      before = now;
      const steps = Math.min(Math.floor(due), this.last - this.index);
      due -= Math.floor(due);
      if (steps > 0) this.goTo(this.index + steps);
      if (this.index === this.last && this.finished) this.stopAt(this.index);
      else this.tick = requestAnimationFrame(tick);
    };
    this.tick = requestAnimationFrame(tick);
  }

  setSpeed(level) {
    this.level = Math.max(0, Math.min(SPEEDS.length - 1, level));
    const glide = this.speed > 30 ? 0 : Math.min(LONGEST_GLIDE, 600 / this.speed);
    document.documentElement.style.setProperty("--glide", `${glide}ms`);
    this.showSpeed();
  }

  /** Handle a key; return false for an unknown one. */
  pressKey(key) {
    if (key === " ") this.togglePlaying();
    else if (key === "ArrowLeft") this.stopAt(this.index - 1);
    else if (key === "ArrowRight") this.stepForward();
    else if (key === "Home") this.stopAt(0);
    else if (key === "End") this.toTheEnd();
    else if (key === "+" || key === "=") this.setSpeed(this.level + 1);
    else if (key === "-") this.setSpeed(this.level - 1);
    else return false;
    return true;
  }
}
