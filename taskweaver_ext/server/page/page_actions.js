/**
 * What views can ask for, as one object that the page makes: no view talks to the server itself.
 *
 * @typedef {object} PageActions
 * @property {string} sessionId
 * @property {(number: number, code: string, language: string) => Promise<void>} runBlock  Run a numbered block again.
 * @property {(code: string, language: string) => void} edit  Put code into the composer.
 * @property {(text: string) => Promise<void>} copy
 * @property {(code: string, cursor: number, language: string) => Promise<import("./code_completion.js").Completion[]>} complete
 * @property {(isKill: boolean) => Promise<void>} stop
 * @property {(questionId: string, outcome: string, text?: string) => Promise<void>} answer
 * @property {(number: number) => Promise<void>} dropFromContext  Let the agent forget a block.
 * @property {(executionId: string, stream: "stdout"|"stderr") => string} recordAddress
 */

export {};
