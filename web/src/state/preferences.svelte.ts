/** Preferences of a person in this browser. */

export type Theme = "system" | "light" | "dark";

const THEMES: readonly Theme[] = ["system", "light", "dark"];

function read(name: string): string {
  try {
    return localStorage.getItem(`rockbot.${name}`) ?? "";
  } catch {
    return "";
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(`rockbot.${name}`, value);
  } catch {
    // Storage is disabled or full: the choice holds until the page is closed.
  }
}

class Preferences {
  theme: Theme = $state("system");
  /** Keys without Ctrl or Alt. People who use speech input switch them off. */
  hasKeys = $state(true);

  constructor() {
    this.theme = THEMES.find((theme) => theme === read("theme")) ?? "system";
    this.hasKeys = read("keys") !== "off";
    this.#show();
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    write("theme", theme);
    this.#show();
  }

  nextTheme(): void {
    this.setTheme(THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length] ?? "system");
  }

  setKeys(hasKeys: boolean): void {
    this.hasKeys = hasKeys;
    write("keys", hasKeys ? "on" : "off");
  }

  #show() {
    document.documentElement.dataset.theme = this.theme;
  }
}

export const preferences = new Preferences();
