/** Screens for operators. They are loaded when the first of them is opened. */
export { default as CallScreen } from "./CallScreen.svelte";
export { default as CallsScreen } from "./CallsScreen.svelte";
export { default as FleetScreen } from "./FleetScreen.svelte";
export { default as LettersScreen } from "./LettersScreen.svelte";
export { default as SchedulesScreen } from "./SchedulesScreen.svelte";
export { default as TasksScreen } from "./TasksScreen.svelte";
export { default as ToolsScreen } from "./ToolsScreen.svelte";
