/** Notifications of the browser, for people who work in another window. */

export function canNotify(): boolean {
  return "Notification" in window && Notification.permission === "default" && window.isSecureContext;
}

/** Asks the person for permission. Call it from a click. */
export async function allowNotifications(): Promise<boolean> {
  return (await Notification.requestPermission()) === "granted";
}

/** Reports an open approval request while the page is hidden. The text has no content of the call. */
export function notifyApproval(agent: string): void {
  if (document.hidden && "Notification" in window && Notification.permission === "granted") {
    new Notification("RockBot", {
      body: `${agent.slice(0, 64)} waits for a decision`,
      tag: "rockbot-approval",
    });
  }
}
