// The page's elements, and the parts that more than one section of it has. Text from files only ever becomes text nodes.

export const byId = (id) => document.getElementById(id);

/** An element: el("td.n", text or children…). */
export function el(name, ...children) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const child of children) node.append(child instanceof Node ? child : String(child));
  return node;
}
export const fill = (id, ...children) => byId(id).replaceChildren(...children);
export const show = (id, on = true) => (byId(id).hidden = !on);

export const table_ = (titles, rows) => Object.assign(el("div.scroll", el("table", titles, el("tbody", ...rows))), { tabIndex: 0 });

export const cut = (text, length = 18) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
export const nameOf = (rows, key) => rows.find((row) => row.key === key)?.name ?? key;
export function named(rows, key) {
  const name = nameOf(rows, key);
  const node = el("th", cut(name, 28));
  node.scope = "row";
  if (name !== key || name.length > 28) node.title = key;
  return node;
}
export const head = (...cells) => el("thead", el("tr", ...cells.map((cell) => (cell.replace(/^>/, "") ? Object.assign(el(cell.startsWith(">") ? "th.n" : "th", cell.replace(/^>/, "")), { scope: "col" }) : el("td", "")))));
export const percent = (share) => `${(Number(share) * 100).toFixed(2)} %`;
export const option = (value, label) => Object.assign(el("option", cut(label, 40)), { value });
