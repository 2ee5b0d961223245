// Asks one published provider the questions of its input, a line of JSON each way, until standard input ends.
//
//   node ask.mjs PROVIDER PORT
//   > {"kind": "string", "key": "banner", "fallback": "", "context": {"tier": "gold"}}
//   < {"value": "Welcome", "variant": "plain", "reason": "STATIC", "flagMetadata": {}}
//
// Besides answers it says {"event": "ready"} once, and {"event": "changed"} whenever the provider does.
import { createInterface } from 'node:readline';

const [provider, port] = [process.argv[2], Number(process.argv[3])];
const say = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);

const server = async (Provider) => ({ sdk: await import('@openfeature/server-sdk'), provider: Provider });
const browser = async (Provider) => ({ sdk: await import('@openfeature/web-sdk'), provider: Provider });

const flagd = async (resolverType) => {
  const { FlagdProvider } = await import('@openfeature/flagd-provider');
  return server(new FlagdProvider({ host: '127.0.0.1', port, resolverType, deadlineMs: 5000 }));
};

const providers = {
  'flagd-rpc': () => flagd('rpc'),
  'flagd-in-process': () => flagd('in-process'),
  'flagd-web': async () => {
    const { FlagdWebProvider } = await import('@openfeature/flagd-web-provider');
    return browser(new FlagdWebProvider({ host: '127.0.0.1', port, tls: false, maxDelay: 500 }));
  },
  ofrep: async () => {
    const { OFREPProvider } = await import('@openfeature/ofrep-provider');
    return server(new OFREPProvider({ baseUrl: `http://127.0.0.1:${port}` }));
  },
  'ofrep-web': async () => {
    // Node has no EventSource of its own without a flag; browsers do.
    globalThis.EventSource ??= (await import('eventsource')).EventSource;
    const { OFREPWebProvider } = await import('@openfeature/ofrep-web-provider');
    return browser(new OFREPWebProvider({ baseUrl: `http://127.0.0.1:${port}`, cacheMode: 'disabled' }));
  },
};

const { sdk, provider: asked } = await providers[provider]();
const { OpenFeature, ProviderEvents } = sdk;
const onServer = asked.runsOn === 'server';
OpenFeature.addHandler(ProviderEvents.ConfigurationChanged, () => say({ event: 'changed' }));
await OpenFeature.setProviderAndWait(asked);
const client = OpenFeature.getClient();
say({ event: 'ready' });

const methods = {
  boolean: 'getBooleanDetails',
  string: 'getStringDetails',
  number: 'getNumberDetails',
  object: 'getObjectDetails',
};
for await (const line of createInterface({ input: process.stdin })) {
  const { kind, key, fallback, context } = JSON.parse(line);
  if (onServer) {
    say(await client[methods[kind]](key, fallback, context));
  } else {
    await OpenFeature.setContext(context);
    say(client[methods[kind]](key, fallback));
  }
}
await OpenFeature.close();
process.exit(0);
