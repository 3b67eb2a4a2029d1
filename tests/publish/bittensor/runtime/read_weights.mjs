// Reads the weights of a uid with polkadot.js, independently of Assay: node read_weights.mjs MODULES URL NETUID UID
import { createRequire } from 'node:module'

const [modules, url, netuid, uid] = process.argv.slice(2)
const { ApiPromise, WsProvider } = createRequire(`${modules}/`)('@polkadot/api')
const api = await ApiPromise.create({ provider: new WsProvider(url, 1000, {}, 60000), noInitWarn: true })
const hash = await api.rpc.chain.getFinalizedHead()
const header = await api.rpc.chain.getHeader(hash)
const at = await api.at(hash)
const rows = (await at.query.subtensorModule.weights(Number(netuid), Number(uid))).toJSON()
const hotkey = await at.query.subtensorModule.keys(Number(netuid), Number(uid))
const weights = Object.fromEntries(rows.map(([to, weight]) => [String(to), weight]))
console.log(JSON.stringify({ block: header.number.toNumber(), hotkey: hotkey.toString(), weights }))
await api.disconnect()
