/**
 * The worker that owns the sockets. Pictures are megabytes a second: read here, they do not hold up scrolling.
 *
 * From the page: `{id, url}` opens a socket, `{id, text}` sends, `{id, close: true}` closes. To the page: `{id, data}` for each
 * message, texts parsed and pictures as buffers, and `{id, closed: true}`.
 */

/** @type {Map<number, WebSocket>} */
const sockets = new Map();

addEventListener("message", ({ data: { id, url, text, close } }) => {
  if (url) open(id, url);
  else if (close) sockets.get(id)?.close();
  else if (sockets.get(id)?.readyState === WebSocket.OPEN) sockets.get(id)?.send(text);
});

function open(id, url) {
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  sockets.set(id, socket);
  socket.onmessage = ({ data }) => {
    if (typeof data === "string") postMessage({ id, data: JSON.parse(data) });
    else postMessage({ id, data }, { transfer: [data] });
  };
  socket.onclose = () => {
    sockets.delete(id);
    postMessage({ id, closed: true });
  };
}
