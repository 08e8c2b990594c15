
// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows the data of the page. Text of processes goes into the page as text (textContent, title), never as HTML.
"use strict";

const D = JSON.parse(document.getElementById("data").textContent);
const UNITS = ["B", "K", "M", "G", "T", "P"];
const STATES = {
  R: "running", S: "sleeping", D: "waiting, no signal wakes it", T: "stopped", t: "traced", Z: "zombie", X: "dead",
  I: "idle in the kernel", P: "parked", "?": "not known",
};
const byId = (id) => document.getElementById(id);

// --- elements and text ---

function el(tag, set, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(set || {})) {
    if (name in e) e[name] = value; else e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

// Sizes as `taskdiag memory` shows them to a person: powers of 1024, and a decimal where that tells something.
function bytes(v) {
  let unit = 0, tenths = v * 10;
  while (tenths >= 9995 && unit + 1 < UNITS.length) {
    tenths = Math.floor((tenths + 512) / 1024);
    unit++;
  }
  tenths = Math.floor(tenths);
  const tail = unit > 0 && tenths < 1000 ? "." + tenths % 10 : "";
  return Math.floor(tenths / 10) + tail + (v > 0 ? UNITS[unit] : "");
}

// CPU time as ps shows it: [DD-]HH:MM:SS.
function clock(s) {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const days = Math.floor(s / 86400);
  return (days ? days + "-" : "") + [s / 3600 % 24, s / 60 % 60, s % 60].map(two).join(":");
}

function date(s) {
  const when = new Date(s * 1000);
  return isNaN(when) ? "?" : when.toISOString().replace("T", " ").replace(/\.\d+Z/, "");
}

const count = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : /s$/.test(word) ? "es" : "s");

function amount(unit, v) {
  switch (unit) {
    case "bytes": return bytes(v);
    case "seconds": return clock(v);
    case "unix seconds": return date(v);
    default: return String(v);
  }
}

// What a cell shows; see cells.rs for how it is written.
function shown(column, v) {
  if (v === -1) return "-";
  if (v < 0) return "?";
  if (column.kind === "text") return D.words[v];
  if (column.kind === "bool") return v ? "yes" : "no";
  return amount(column.unit, v);
}

const why = (v) => v < -1 ? "not known: " + D.reasons[-2 - v] : "";

// --- the processes ---

const T = D.tasks;
const at = {};
T.columns.forEach((c, i) => { at[c.name] = i; });
const cell = (row, name) => row[at[name]];
const text = (row, name) => name in at ? shown(T.columns[at[name]], cell(row, name)) : "";
const known = (row, name) => name in at && cell(row, name) > 0 ? cell(row, name) : 0;
const io = (row) => known(row, "read_bytes") + known(row, "write_bytes");
