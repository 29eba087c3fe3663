/** The words of both sides, as the room's text streams bring them. */

export const TOPIC = "lk.transcription";

const NEAR_BOTTOM_PX = 40;

export class Transcript {
  constructor() {
    this.list = document.getElementById("words");
    this.empty = document.getElementById("no-words");
    this.said = document.getElementById("said");
    this.segments = new Map();
  }

  clear() {
    this.list.replaceChildren();
    this.segments.clear();
    this.said.textContent = "";
    this.empty.hidden = false;
  }

  /**
   * Reads one stream to its end. The agent's streams bring what is added to a segment; each of the
   * caller's brings a segment's words anew.
   */
  async read(reader, isAgent) {
    const attributes = reader.info.attributes ?? {};
    const key = attributes["lk.segment_id"] ?? reader.info.id;
    const segment = this.segments.get(key) ?? this.add(key, isAgent);
    let text = isAgent ? segment.text : "";
    try {
      for await (const piece of reader) {
        text += piece;
        this.show(segment, text);
      }
    } catch {
      return; // the call ended in the middle of it: what came stays
    }
    const isFinal = isAgent || attributes["lk.transcription_final"] === "true";
    if (isFinal && text.trim()) {
      this.said.textContent = `${isAgent ? "Agent" : "You"}: ${text}`;
    }
  }

  add(key, isAgent) {
    const item = document.createElement("li");
    item.className = isAgent ? "agent" : "user";
    item.hidden = true;
    const name = document.createElement("b");
    name.textContent = isAgent ? "Agent" : "You";
    const words = document.createElement("span");
    item.append(name, words);
    this.list.append(item);
    const segment = { item, words, text: "" };
    this.segments.set(key, segment);
    return segment;
  }

  show(segment, text) {
    segment.text = text;
    const { list } = this;
    const follows = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_BOTTOM_PX;
    segment.words.textContent = text;
    segment.item.hidden = text.trim() === "";
    this.empty.hidden = true;
    if (follows) list.scrollTop = list.scrollHeight;
  }
}
